package stages_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestRunners_MayServeDifferentStages(t *testing.T) {
	t.Parallel()
	pipeline := func(first, second int) *stages.Pipeline {
		p, err := stages.New("test",
			stages.Stage{Name: "one", Slots: first, Work: noop},
			stages.Stage{Name: "two", Slots: second, Needs: []string{"one"}, Work: noop})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	b := setup(t, stages.Stage{Name: "one", Work: noop}, stages.Stage{Name: "two", Needs: []string{"one"}, Work: noop})
	start := func(first, second int, channels ...string) *runner {
		part := b
		part.pipeline = pipeline(first, second)
		for i, c := range part.pipeline.Channels()[1:] {
			if i >= len(channels) || c != b.Graph().Channel(channels[i]) {
				t.Errorf("with %d and %d slots the pipeline listens on %q", first, second, c)
			}
		}
		return part.start(func(r *stages.Runner) { r.Wakes = part.listening() })
	}
	ones, twos := start(1, -1, "one"), start(-1, 1, "two")
	for range 20 {
		b.submit()
	}
	submitted := time.Now()
	for name, r := range map[string]*runner{"one": ones, "two": twos} {
		for range 20 {
			if e := r.wait(t, stages.StageCompleted); e.Stage != name {
				t.Errorf("the runner for %s completed %s", name, e.Stage)
			}
		}
	}
	// A sweep would come after an hour.
	if took := time.Since(submitted); took > 10*time.Second {
		t.Errorf("the tasks took %s", took)
	}
}

// Four workers share one database, and no sweep would come in time. Siblings become ready
// at the same instant in the same row: a worker that skips one because another has
// locked the row must try again.
func TestRunners_CompleteEveryStageOnceWithoutSweeps(t *testing.T) {
	t.Parallel()
	const processes, tasks = 4, 500
	var ran atomic.Int64
	work := func(context.Context, *stages.Job) (any, error) { ran.Add(1); return nil, nil }
	b := setup(t,
		stages.Stage{Name: "a", Slots: 3, Work: work},
		stages.Stage{Name: "b", Slots: 3, Needs: []string{"a"}, Work: work},
		stages.Stage{Name: "c", Slots: 3, Needs: []string{"a"}, Work: work},
		stages.Stage{Name: "d", Slots: 3, Needs: []string{"b", "c"}, Work: work},
		stages.Stage{Name: "e", Slots: 3, Needs: []string{"d"}, Work: work},
	)
	type observed struct {
		process int
		stages.Event
	}
	all := make(chan observed, 20*tasks) // the events of all workers
	for i := range processes {
		b.start(func(r *stages.Runner) {
			r.Wakes = b.listening()
			own := r.Observe
			r.Observe = func(e stages.Event) { own(e); all <- observed{i, e} }
		})
	}
	for started := 0; started < processes; {
		if e := <-all; e.Kind == stages.WorkerStarted {
			started++
		}
	}
	subs := make([]store.Submission, tasks)
	for i := range subs {
		subs[i].Source = fmt.Sprint(i)
	}
	receipts, err := b.SubmitAll(t.Context(), subs)
	if err != nil {
		t.Fatal(err)
	}
	completed, released, shares := 0, 0, make([]int, processes)
	timeout := time.NewTimer(60 * time.Second)
	defer timeout.Stop()
	for completed < tasks*5 {
		select {
		case e := <-all:
			if e.Kind == stages.StageCompleted {
				completed++
				shares[e.process]++
			} else if e.Kind == stages.ClaimReleased {
				released++
			} else if e.Err != nil {
				t.Errorf("%s: %v", e.Kind, e.Err)
			}
		case <-timeout.C:
			t.Fatalf("%d of %d stages were completed; the others wait for a sweep", completed, tasks*5)
		}
	}
	// A claim that finds no slot within 250 ms is released: on a busy machine, a few are.
	if released > tasks*5/100 {
		t.Errorf("%d claims were released, want at most one in a hundred", released)
	}
	if ran.Load() != tasks*5 {
		t.Errorf("work ran %d times, want %d", ran.Load(), tasks*5)
	}
	for i, n := range shares {
		if n == 0 {
			t.Errorf("worker %d completed nothing: %v", i, shares)
		}
	}
	for _, receipt := range receipts[:50] {
		completed := 0
		for _, a := range b.history(receipt.ID) {
			if a.Outcome == "completed" {
				completed++
			}
		}
		if completed != 5 {
			t.Errorf("task has %d completed attempts, want 5", completed)
		}
	}
}

func TestOnlyTasks_LeavesOtherTasksAlone(t *testing.T) {
	t.Parallel()
	b := setup(t,
		stages.Stage{Name: "one", Slots: 4, Work: noop},
		stages.Stage{Name: "two", Needs: []string{"one"}, Slots: 4, Work: noop},
	)
	others := b.submit()
	part := b.submit()
	urgent, err := b.Submit(t.Context(), store.Submission{Source: "a", Priority: 9})
	if err != nil {
		t.Fatal(err)
	}
	r := b.start(func(r *stages.Runner) { r.Wakes, r.OnlyTasks = b.listening(), []store.ID{part} })
	r.wait(t, stages.StageCompleted)
	r.wait(t, stages.StageCompleted)
	r.stop()
	for _, id := range []store.ID{others, urgent.ID} {
		if s := b.task(id).Status; s != store.StatusPending {
			t.Errorf("another task is %s", s)
		}
	}
	if s := b.task(part).Status; s != store.StatusCompleted {
		t.Errorf("the Runner's own task is %s", s)
	}
}
