package stages_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestResult_IsReadByDependentStages(t *testing.T) {
	t.Parallel()
	type probe struct{ Width int }
	got := make(chan probe, 1)
	b := setup(t,
		stages.Stage{Name: "probe", Work: func(context.Context, *stages.Job) (any, error) { return probe{640}, nil }},
		stages.Stage{Name: "use", Needs: []string{"probe"}, Work: func(ctx context.Context, j *stages.Job) (any, error) {
			p, err := stages.Result[probe](ctx, j, "probe")
			got <- p
			return nil, err
		}},
	)
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	id := b.submit()
	r.wait(t, stages.StageCompleted)
	r.wait(t, stages.StageCompleted)
	if p := <-got; p.Width != 640 {
		t.Errorf("dependent read %+v", p)
	}
	if s := b.task(id).Status; s != store.StatusCompleted {
		t.Errorf("task is %s", s)
	}
}

func TestSweep_AloneCompletesAllTasks(t *testing.T) {
	t.Parallel()
	b := setup(t,
		stages.Stage{Name: "one", Work: noop},
		stages.Stage{Name: "two", Needs: []string{"one"}, Work: noop},
		stages.Stage{Name: "three", Needs: []string{"one"}, Work: noop},
		stages.Stage{Name: "four", Needs: []string{"two", "three"}, Work: noop},
	)
	r := b.start(func(r *stages.Runner) { r.SweepInterval = 50 * time.Millisecond })
	for range 20 {
		b.submit()
	}
	for range 4 * 20 {
		r.wait(t, stages.StageCompleted)
	}
}

func TestPanic_FailsTheAttemptWithItsStack(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{
		Name: "one", MaxAttempts: 1, Work: func(context.Context, *stages.Job) (any, error) { panic("work panicked") },
	})
	id := b.submit()
	r := b.start(nil)
	r.wait(t, stages.StageDead)
	h := b.history(id)[0]
	if h.Class != "panic" || !strings.Contains(h.Error, "work panicked") || !strings.Contains(h.Error, "runner_test.go") {
		t.Errorf("history has class %q and error %q", h.Class, h.Error)
	}
}

func TestGoexit_FailsTheAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", MaxAttempts: 1, Work: func(context.Context, *stages.Job) (any, error) {
		runtime.Goexit()
		return nil, nil
	}})
	b.submit()
	r := b.start(nil)
	r.wait(t, stages.StageDead)
	r.stop() // the slot is free again
	b.submit()
	b.start(nil).wait(t, stages.StageDead)
}

func TestErrors_DecideOnRetries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		attempts int
		class    string
	}{
		"ordinary":    {errors.New("work failed"), 3, "error"},
		"permanent":   {fmt.Errorf("wrapped: %w", stages.Permanent(errors.New("not a video"))), 1, "permanent"},
		"retry after": {stages.RetryAfter(time.Millisecond, errors.New("busy")), 3, "retry_after"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, stages.Stage{
				Name: "one", Backoff: stages.Backoff{Base: time.Millisecond},
				Work: func(context.Context, *stages.Job) (any, error) { return nil, c.err },
			})
			id := b.submit()
			b.start(nil).wait(t, stages.StageDead)
			h := b.history(id)
			if len(h) != c.attempts || h[0].Class != c.class {
				t.Errorf("%d attempts of class %s, want %d of %s", len(h), h[0].Class, c.attempts, c.class)
			}
			if task := b.task(id); task.Status != store.StatusDead || task.Stages[0].Attempts != c.attempts {
				t.Errorf("task is %s after %d attempts", task.Status, task.Stages[0].Attempts)
			}
		})
	}
}

func TestResult_ThatCannotBeStoredEndsOnlyItsStage(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Slots: 4, Work: func(_ context.Context, j *stages.Job) (any, error) {
		switch {
		case strings.Contains(string(j.Params), "1"):
			return "a \x00 in it", nil
		case strings.Contains(string(j.Params), "2"):
			return make(chan int), nil
		case strings.Contains(string(j.Params), "3"):
			return rawJSON("1e400000"), nil // JSON, but beyond PostgreSQL's numeric
		case strings.Contains(string(j.Params), "4"):
			return `\u0000`, nil // a backslash and five characters, no NUL
		}
		return nil, nil
	}})
	for i := range 5 {
		_, err := b.Submit(t.Context(), store.Submission{Source: "a", Params: fmt.Appendf(nil, `{"n": %d}`, i)})
		if err != nil {
			t.Fatal(err)
		}
	}
	r := b.start(nil)
	ended := map[stages.Kind]int{}
	for ended[stages.StageDead]+ended[stages.StageCompleted] < 5 {
		e := <-r.events
		ended[e.Kind]++
	}
	if ended[stages.StageDead] != 3 || ended[stages.StageCompleted] != 2 {
		t.Errorf("%d dead and %d completed, want 3 and 2", ended[stages.StageDead], ended[stages.StageCompleted])
	}
}

type rawJSON string

func (j rawJSON) MarshalJSON() ([]byte, error) { return []byte(j), nil }

func TestTimeout_CancelsTheAttemptWithItsCause(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{
		Name: "one", MaxAttempts: 1, Timeout: 20 * time.Millisecond,
		Work: func(ctx context.Context, _ *stages.Job) (any, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
	})
	id := b.submit()
	b.start(nil).wait(t, stages.StageDead)
	if h := b.history(id)[0]; h.Class != "timeout" || !strings.Contains(h.Error, "timed out after 20ms") {
		t.Errorf("history has class %q and error %q", h.Class, h.Error)
	}
}

func TestCancel_StopsRunningWorkAtOnce(t *testing.T) {
	t.Parallel()
	causes := make(chan error, 1)
	b := setup(t, stages.Stage{Name: "one", Work: workUntilCancelled(causes)})
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	// A heartbeat alone would find the cancel after about two seconds. Four cancels that
	// each take less than a second need notifications.
	for range 4 {
		id := b.submit()
		r.wait(t, stages.StageStarted)
		cancelled := time.Now()
		if err := b.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := <-causes; !errors.Is(err, stages.ErrCancelled) || errors.Is(err, stages.ErrLeaseLost) {
			t.Errorf("cause is %v", err)
		}
		if took := time.Since(cancelled); took > time.Second {
			t.Errorf("the work was stopped after %s", took)
		}
		r.wait(t, stages.ClaimRevoked)
		if s := b.task(id).Status; s != store.StatusCancelled {
			t.Errorf("task is %s", s)
		}
	}
}

func TestDrain_LetsWorkFinishWithinTheGrace(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}), make(chan struct{})
	b := setup(t,
		stages.Stage{Name: "one", Work: func(context.Context, *stages.Job) (any, error) {
			close(started)
			<-finish
			return nil, nil
		}},
		stages.Stage{Name: "two", Needs: []string{"one"}, Work: noop},
	)
	id := b.submit()
	r := b.start(nil)
	<-started
	stopped := make(chan struct{})
	go func() { r.stop(); close(stopped) }()
	if e := r.wait(t, stages.WorkerDraining); e.Count != 1 {
		t.Errorf("WorkerDraining says that %d attempts run, want 1", e.Count)
	}
	waittest.Until(t, "the worker's state is draining", func() bool {
		workers, err := b.Workers(t.Context(), false)
		must(t, err)
		return workers[0].State() == "draining"
	})
	close(finish)
	<-stopped
	task := b.task(id)
	if task.Stages[0].Status != store.StatusCompleted || task.Stages[1].Status != store.StatusPending {
		t.Errorf("stages are %+v; want one completed, and two pending", task.Stages)
	}
	if left, err := b.Workers(t.Context(), false); err != nil || len(left) != 0 {
		t.Errorf("%d workers are left, %v", len(left), err)
	}
}

func TestDrain_ReleasesWorkThatOutlastsTheGrace(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*stages.Runner){
		"grace": func(r *stages.Runner) { r.Grace = 10 * time.Millisecond },
		"abort": func(r *stages.Runner) {
			closed := make(chan struct{})
			close(closed)
			r.Grace, r.Abort = time.Hour, closed
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			causes := make(chan error, 1)
			b := setup(t, stages.Stage{Name: "one", Work: workUntilCancelled(causes)})
			id := b.submit()
			r := b.start(change)
			r.wait(t, stages.StageStarted)
			r.stop()
			if err := <-causes; !errors.Is(err, stages.ErrDraining) {
				t.Errorf("cause is %v", err)
			}
			if s := b.task(id).Stages[0]; s.Status != store.StatusPending || s.Attempts != 0 {
				t.Errorf("stage is %s after %d attempts, want pending after none", s.Status, s.Attempts)
			}
			if h := b.history(id); len(h) != 1 || h[0].Outcome != "released" {
				t.Errorf("history is %+v", h)
			}
		})
	}
}

func TestRun_RejectsIncompleteRunners(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Work: noop})
	other, err := stages.New("other", stages.Stage{Name: "one", Work: noop})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]stages.Runner{
		"no pool":     {Pipeline: b.pipeline},
		"no pipeline": {Pool: b.pool},
		"no tables":   {Pool: b.pool, Pipeline: other},
	} {
		if name == "no tables" {
			if _, err := b.pool.Exec(t.Context(), "drop table test_workers cascade"); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Run(t.Context()); err == nil {
			t.Errorf("%s: Run returned no error", name)
		}
	}
}

func TestRunner_DrainsAndEndsWhenTheTablesAreNewerThanItSupports(t *testing.T) {
	t.Parallel()
	began, finish := make(chan struct{}), make(chan struct{})
	b := setup(t, stages.Stage{Name: "only", Slots: 1, Work: func(context.Context, *stages.Job) (any, error) {
		close(began)
		<-finish
		return nil, nil
	}})
	first := b.submit()
	draining := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		r := stages.Runner{
			Backend: b.backend, Pipeline: b.pipeline, SweepInterval: 20 * time.Millisecond, Grace: time.Hour,
			Observe: func(e stages.Event) {
				if e.Kind == stages.WorkerDraining {
					close(draining)
				}
			},
		}
		ended <- r.Run(context.Background())
	}()
	<-began
	second := b.submit()
	newer := store.SchemaVersion + 1
	_, err := b.pool.Exec(t.Context(), "update test_pipeline set version = $1", newer)
	must(t, err)
	<-draining
	close(finish)
	if err := <-ended; !errors.Is(err, store.ErrSchemaNewer) || strings.Count(err.Error(), store.ErrSchemaNewer.Error()) != 1 {
		t.Errorf("Run returned %v, want one sentence about newer tables", err)
	}
	if one, two := b.status(first, 0), b.status(second, 0); one != store.StatusCompleted || two != store.StatusPending {
		t.Errorf("the task in progress is %s, the one that was submitted then %s", one, two)
	}
}

// A worker that was frozen while its tables got further stages would register again and again.
func TestRunner_EndsWhenTheTablesGotOtherStagesWhileItWasFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "only", Slots: 1, Work: noop})
	started := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		r := stages.Runner{Backend: b.backend, Pipeline: b.pipeline, Observe: func(e stages.Event) {
			if e.Kind == stages.WorkerStarted {
				started <- struct{}{}
			}
		}}
		ended <- r.Run(context.Background())
	}()
	<-started
	_, err := b.pool.Exec(t.Context(), `with lost as (update test_workers set lost_at = now())
		update test_pipeline set stages = 'only; further needs only'`)
	must(t, err)
	if err := <-ended; !errors.Is(err, store.ErrSchemaShape) || strings.Count(err.Error(), store.ErrSchemaShape.Error()) != 1 {
		t.Errorf("Run returned %v, want one sentence about other stages", err)
	}
}
