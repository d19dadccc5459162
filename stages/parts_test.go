package stages_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// numbered returns a Divide with n parts, whose specs are their numbers.
func numbered(n int) stages.Divide {
	return func(context.Context, *stages.Job) ([]stages.Part, error) {
		parts := make([]stages.Part, n)
		for i := range parts {
			parts[i].Spec = map[string]int{"number": i + 1}
		}
		return parts, nil
	}
}

func square(_ context.Context, job *stages.Job) (any, error) {
	spec, err := stages.Spec[struct{ Number int }](job)
	if err != nil || spec.Number != job.Part {
		return nil, fmt.Errorf("part %d has the spec %s: %w", job.Part, job.Spec, err)
	}
	return spec.Number * spec.Number, nil
}

func sum(ctx context.Context, job *stages.Job) (any, error) {
	all, err := stages.PartResults[int](ctx, job)
	if job.Parts == 0 || err != nil {
		return nil, errors.Join(errors.New("the parts are not completed"), err)
	}
	total := 0
	for _, n := range all {
		total += n
	}
	return total, nil
}

func TestParts_AreJoinedWhenAllAreCompleted(t *testing.T) {
	t.Parallel()
	b := setup(t,
		stages.Stage{Name: "first", Work: noop},
		stages.Stage{Name: "square", Needs: []string{"first"}, Divide: numbered(10), Part: square, Work: sum, Slots: 3},
		stages.Stage{Name: "last", Needs: []string{"square"}, Work: noop},
	)
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	for e := r.wait(t, stages.StageCompleted); e.Stage != "last"; e = r.wait(t, stages.StageCompleted) {
	}
	raw, err := b.Result(t.Context(), id, "square")
	if err != nil || string(raw) != "385" {
		t.Errorf("the result is %s, %v", raw, err)
	}
	var outcomes []string
	for _, a := range b.history(id) {
		if a.Stage == "square" {
			outcomes = append(outcomes, fmt.Sprintf("%d %s %d", a.Part, a.Outcome, a.Attempt))
		}
	}
	if len(outcomes) != 12 || outcomes[0] != "0 divided 1" || outcomes[11] != "0 completed 1" {
		t.Errorf("the history is %q", outcomes)
	}
	parts, err := b.Parts(t.Context(), id)
	if err != nil || len(parts) != 10 || slices.ContainsFunc(parts, func(p store.PartState) bool {
		return p.Status != store.StatusCompleted || p.Attempts != 1
	}) {
		t.Errorf("the parts are %+v, %v", parts, err)
	}
}

func TestParts_WorkDoesAllWithoutThem(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{
		Name: "one", Divide: numbered(0), Part: square, Work: func(_ context.Context, job *stages.Job) (any, error) {
			return job.Parts, nil
		},
	})
	id := b.submit()
	r := b.start(nil)
	r.wait(t, stages.StageCompleted)
	raw, err := b.Result(t.Context(), id, "one")
	if err != nil || string(raw) != "0" || len(b.history(id)) != 1 {
		t.Errorf("the result is %s, the history %+v, %v", raw, b.history(id), err)
	}
}

// A short task that comes behind a long one on one slot begins after two parts of it.
func TestParts_OfTasksAreClaimedByTurns(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	started := make(chan struct{}, 100)
	submitted := make(chan struct{})
	b := setup(t, stages.Stage{
		Name: "one",
		Divide: func(ctx context.Context, job *stages.Job) ([]stages.Part, error) {
			if job.Source == "film" {
				return numbered(6)(ctx, job)
			}
			return numbered(2)(ctx, job)
		},
		Part: func(ctx context.Context, job *stages.Job) (any, error) {
			mu.Lock()
			order = append(order, fmt.Sprintf("%s %d", job.Source, job.Part))
			mu.Unlock()
			started <- struct{}{}
			if job.Source == "film" && job.Part == 2 {
				<-submitted
			}
			return workTaking(300*time.Millisecond)(ctx, job) // so long that nothing is prefetched
		},
		Work: func(_ context.Context, job *stages.Job) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, job.Source+" joined")
			return nil, nil
		},
	})
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	submit := func(source string) {
		_, err := b.Submit(t.Context(), store.Submission{Source: source})
		must(t, err)
	}
	submit("film")
	<-started
	<-started
	submit("clip")
	close(submitted)
	for range 2 {
		r.wait(t, stages.StageCompleted)
	}
	// The join takes no slot, so a part of the film may begin with it.
	if joined := slices.Index(order, "clip joined"); joined > slices.Index(order, "film 6") {
		t.Errorf("the clip was joined late: %q", order)
	}
	if began := slices.Index(order, "clip 1"); began > slices.Index(order, "film 4") {
		t.Errorf("the clip began late: %q", order)
	}
}

func TestParts_AreRetriedAlone(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	tries := map[int]int{}
	b := setup(t, stages.Stage{
		Name: "one", Divide: numbered(4), Work: sum, Slots: 2, Backoff: stages.Backoff{Base: time.Millisecond},
		Part: func(ctx context.Context, job *stages.Job) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			tries[job.Part]++
			if job.Part == 3 && job.Attempt < 3 {
				return nil, errors.New("the disk is slow")
			}
			return square(ctx, job)
		},
	})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	r.wait(t, stages.StageCompleted)
	if raw, err := b.Result(t.Context(), id, "one"); err != nil || string(raw) != "30" {
		t.Errorf("the result is %s, %v", raw, err)
	}
	for part, n := range tries {
		if want := map[int]int{1: 1, 2: 1, 3: 3, 4: 1}[part]; n != want {
			t.Errorf("part %d was tried %d times", part, n)
		}
	}
}

func TestParts_ADeadOneEndsTheStageAndCompletedOnesAreKept(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	done := map[int]int{}
	broken := true
	b := setup(t, stages.Stage{
		Name: "one", Divide: numbered(4), Work: sum, MaxAttempts: 1,
		Part: func(ctx context.Context, job *stages.Job) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			if job.Part == 3 && broken {
				return nil, errors.New("the disk is full")
			}
			done[job.Part]++
			return square(ctx, job)
		},
	})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	e := r.wait(t, stages.StageDead)
	if e.Part != 3 {
		t.Errorf("the event is %+v", e)
	}
	if got := b.status(id, 0); got != store.StatusDead {
		t.Errorf("the stage is %s", got)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	must(t, b.Retry(t.Context(), id, ""))
	r.wait(t, stages.StageCompleted)
	if raw, err := b.Result(t.Context(), id, "one"); err != nil || string(raw) != "30" {
		t.Errorf("the result is %s, %v", raw, err)
	}
	if done[1] != 1 || done[2] != 1 {
		t.Errorf("completed parts were done again: %v", done)
	}
}
