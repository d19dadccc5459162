package stages_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// partCounts counts how often each part was done.
type partCounts struct {
	mu   sync.Mutex
	done map[int]int
}

func (c *partCounts) part(_ context.Context, job *stages.Job) (any, error) {
	spec, err := stages.Spec[string](job)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(map[int]int)
	}
	c.done[job.Part]++
	return fmt.Sprintf("%s %d", spec, job.Part), err
}

func (c *partCounts) String() string { return fmt.Sprint(c.done) }

// specified returns parts with one spec, of which some are kept.
func specified(spec string, n int, kept ...int) []stages.Part {
	parts := make([]stages.Part, n)
	for i := range parts {
		parts[i] = stages.Part{Spec: spec, Keep: slices.Contains(kept, i+1)}
	}
	return parts
}

func dividing(parts []stages.Part) stages.Divide {
	return func(context.Context, *stages.Job) ([]stages.Part, error) { return parts, nil }
}

// outcomes returns the attempts at a task's stages, not at parts, with their errors.
func (b bundle) outcomes(id store.ID) (all []string) {
	for _, a := range b.history(id) {
		if a.Part == 0 {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %d %s", a.Outcome, a.Attempt, a.Error)))
		}
	}
	return all
}

func TestDivideAgain_DoesTheNextPhaseAndKeepsParts(t *testing.T) {
	t.Parallel()
	var counts partCounts
	b := setup(t, stages.Stage{
		Name: "one", Slots: 2, MaxAttempts: 1, Divide: dividing(specified("quick", 2)), Part: counts.part,
		Work: func(ctx context.Context, job *stages.Job) (any, error) {
			switch job.Parts {
			case 2:
				return nil, stages.DivideAgain(specified("whole", 4, 1), nil)
			case 4:
				return nil, fmt.Errorf("next phase: %w", stages.DivideAgain(specified("last", 3, 1, 2), nil))
			}
			return stages.PartResults[string](ctx, job)
		},
	})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	var divisions []string
	for e := range r.events {
		if e.Kind == stages.StageDivided {
			divisions = append(divisions, fmt.Sprint(e.Count, e.Kept, e.Err))
		}
		if e.Kind == stages.StageDead {
			t.Fatalf("the stage is dead: %v", e.Err)
		}
		if e.Kind == stages.StageCompleted {
			break
		}
	}
	raw, err := b.Result(t.Context(), id, "one")
	if err != nil || string(raw) != `["quick 1", "whole 2", "last 3"]` {
		t.Errorf("the result is %s, %v", raw, err)
	}
	if got, want := counts.String(), fmt.Sprint(map[int]int{1: 1, 2: 2, 3: 2, 4: 1}); got != want {
		t.Errorf("the parts were done %s, want %s", got, want)
	}
	if want := []string{"2 0 <nil>", "4 1 <nil>", "3 2 <nil>"}; !slices.Equal(divisions, want) {
		t.Errorf("the divisions are %q", divisions)
	}
	if got := b.outcomes(id); !slices.Equal(got, []string{"divided 1", "divided 1", "divided 1", "completed 1"}) {
		t.Errorf("the history is %q", got)
	}
}

func TestDivideAgain_WithAnErrorIsAnAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damaged  int // in how many joins
		status   store.Status
		outcomes []string
		done     map[int]int
	}{
		"damaged once": {
			1, store.StatusCompleted, []string{"divided 1", "divided 1 part 2 is damaged", "completed 2"}, map[int]int{1: 1, 2: 2, 3: 1},
		},
		"damaged always": {
			99, store.StatusDead,
			[]string{"divided 1", "divided 1 part 2 is damaged", "divided 2 part 2 is damaged", "failed 3 part 2 is damaged"},
			map[int]int{1: 1, 2: 3, 3: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counts partCounts
			joins := 0
			b := setup(t, stages.Stage{
				Name: "one", MaxAttempts: 3, Divide: dividing(specified("chunk", 3)), Part: counts.part,
				Work: func(context.Context, *stages.Job) (any, error) {
					if joins++; joins <= c.damaged {
						return nil, stages.DivideAgain(specified("chunk", 3, 1, 3), stages.Permanent(errors.New("part 2 is damaged")))
					}
					return nil, nil
				},
			})
			id := b.submit()
			r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
			for e := range r.events {
				if e.Kind == stages.StageDivided && e.Kept > 0 && (e.Err == nil || e.Err.Error() != "part 2 is damaged") {
					t.Errorf("the event is %+v", e)
				}
				if e.Kind == stages.StageCompleted || e.Kind == stages.StageDead {
					break
				}
			}
			if got := b.outcomes(id); b.status(id, 0) != c.status || !slices.Equal(got, c.outcomes) {
				t.Errorf("the stage is %s, the history %q", b.status(id, 0), got)
			}
			if got := counts.String(); got != fmt.Sprint(c.done) {
				t.Errorf("the parts were done %s, want %v", got, c.done)
			}
		})
	}
}

func TestDivideAgain_OfADeadStageIsTriedAgainByARetry(t *testing.T) {
	t.Parallel()
	var counts partCounts
	lost := make(chan bool, 2)
	lost <- true
	b := setup(t, stages.Stage{
		Name: "one", MaxAttempts: 1, Divide: dividing(specified("chunk", 2)), Part: counts.part,
		Work: func(context.Context, *stages.Job) (any, error) {
			select {
			case <-lost:
				return nil, stages.DivideAgain(specified("chunk", 2, 1), errors.New("part 2 is lost"))
			default:
				return nil, nil
			}
		},
	})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	r.wait(t, stages.StageDead)
	must(t, b.Retry(t.Context(), id, ""))
	r.wait(t, stages.StageCompleted)
	if got := b.outcomes(id); !slices.Equal(got, []string{"divided 1", "failed 1 part 2 is lost", "completed 1"}) {
		t.Errorf("the history is %q", got)
	}
	if counts.String() != fmt.Sprint(map[int]int{1: 1, 2: 1}) {
		t.Errorf("the parts were done %s", &counts)
	}
}

// A join that is stopped may find no files only because it was stopped.
func TestDivideAgain_OfAStoppedAttemptChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{
		Name: "one", MaxAttempts: 1, Timeout: 50 * time.Millisecond, Divide: dividing(specified("chunk", 2)),
		Part: func(context.Context, *stages.Job) (any, error) { return nil, nil },
		Work: func(ctx context.Context, _ *stages.Job) (any, error) {
			<-ctx.Done()
			return nil, stages.DivideAgain(specified("chunk", 2, 1), errors.New("part 2 is lost"))
		},
	})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	if e := r.wait(t, stages.StageDead); !errors.Is(e.Err, stages.ErrTimeout) || !strings.Contains(e.Err.Error(), "part 2 is lost") {
		t.Errorf("the error is %v", e.Err)
	}
	parts, err := b.Parts(t.Context(), id)
	if err != nil || parts[0].Status != store.StatusCompleted || parts[1].Status != store.StatusCompleted {
		t.Errorf("the parts are %+v, %v", parts, err)
	}
}

func TestDivideAgain_RefusesInvalidUses(t *testing.T) {
	t.Parallel()
	again := func(parts ...stages.Part) stages.Work {
		return func(context.Context, *stages.Job) (any, error) {
			return nil, stages.DivideAgain(parts, errors.New("lost"))
		}
	}
	const notJoin = "only the Work of a stage that was divided can divide it again"
	keep := stages.Part{Keep: true}
	for name, c := range map[string]struct {
		stage stages.Stage
		want  string
	}{
		"all parts are kept":           {stages.Stage{Divide: numbered(2), Part: noop, Work: again(keep, keep)}, "none of the 2 parts"},
		"there are no parts":           {stages.Stage{Divide: numbered(2), Part: noop, Work: again()}, "none of the 0 parts"},
		"a part is kept that is new":   {stages.Stage{Divide: numbered(1), Part: noop, Work: again(stages.Part{}, keep)}, "part 2 is to be kept"},
		"a spec is not JSON":           {stages.Stage{Divide: numbered(1), Part: noop, Work: again(stages.Part{Spec: again})}, "spec of part 1"},
		"a part divides":               {stages.Stage{Divide: numbered(1), Part: again(stages.Part{}), Work: noop}, notJoin},
		"a stage without Divide":       {stages.Stage{Work: again(stages.Part{})}, notJoin},
		"a stage without parts":        {stages.Stage{Divide: numbered(0), Part: noop, Work: again(stages.Part{})}, notJoin},
		"a first division keeps parts": {stages.Stage{Divide: dividing([]stages.Part{{}, keep}), Part: noop, Work: noop}, "part 2 is to be kept"},
		"Divide divides again": {stages.Stage{Part: noop, Work: noop, Divide: func(ctx context.Context, job *stages.Job) ([]stages.Part, error) {
			_, err := again(stages.Part{})(ctx, job)
			return nil, err
		}}, notJoin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.stage.Name = "one"
			b := setup(t, c.stage)
			b.submit()
			r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
			if e := r.wait(t, stages.StageDead); e.Attempt != 1 || !strings.Contains(e.Err.Error(), c.want) || !stages.IsPermanent(e.Err) {
				t.Errorf("attempt %d, the error is %v", e.Attempt, e.Err)
			}
		})
	}
}
