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

func TestProcessesShareThePipelineByStages(t *testing.T) {
	t.Parallel()
	pipeline := func(first, second int) *stages.Pipeline {
		p, err := stages.New("test",
			stages.Stage{Name: "one", Workers: first, Work: noop},
			stages.Stage{Name: "two", Workers: second, Needs: []string{"one"}, Work: noop})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	b := setup(t, stages.Stage{Name: "one", Work: noop}, stages.Stage{Name: "two", Needs: []string{"one"}, Work: noop})
	part := func(first, second int, channels ...string) *runner {
		mine := b
		mine.pipeline = pipeline(first, second)
		for i, c := range mine.pipeline.Channels()[1:] {
			if i >= len(channels) || c != b.Graph().Channel(channels[i]) {
				t.Errorf("with %d and %d slots it listens on %q", first, second, c)
			}
		}
		return mine.start(func(r *stages.Runner) { r.Wakes = mine.listening() })
	}
	ones, twos := part(1, -1, "one"), part(-1, 1, "two")
	for range 20 {
		b.submit()
	}
	began := time.Now()
	for name, r := range map[string]*runner{"one": ones, "two": twos} {
		for range 20 {
			if e := r.wait(t, stages.StageCompleted); e.Stage != name {
				t.Errorf("the one for %s completed %s", name, e.Stage)
			}
		}
	}
	// The sweep comes once an hour.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// Four processes on one database; no sweep would come in time. Siblings become
// ready at the same instant on the same row, and whoever misses one because
// another process has the row locked must not leave it lying.
func TestManyProcessesCompleteEveryStageOnceAndMissNone(t *testing.T) {
	t.Parallel()
	const processes, tasks = 4, 500
	var ran atomic.Int64
	work := func(context.Context, *stages.Job) (any, error) { ran.Add(1); return nil, nil }
	b := setup(t,
		stages.Stage{Name: "a", Workers: 3, Work: work},
		stages.Stage{Name: "b", Workers: 3, Needs: []string{"a"}, Work: work},
		stages.Stage{Name: "c", Workers: 3, Needs: []string{"a"}, Work: work},
		stages.Stage{Name: "d", Workers: 3, Needs: []string{"b", "c"}, Work: work},
		stages.Stage{Name: "e", Workers: 3, Needs: []string{"d"}, Work: work},
	)
	type told struct {
		process int
		stages.Event
	}
	all := make(chan told, 20*tasks) // what all processes tell
	for i := range processes {
		b.start(func(r *stages.Runner) {
			r.Wakes = b.listening()
			own := r.Observe
			r.Observe = func(e stages.Event) { own(e); all <- told{i, e} }
		})
	}
	for there := 0; there < processes; {
		if e := <-all; e.Kind == stages.WorkerStarted {
			there++
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
	late := time.NewTimer(60 * time.Second)
	defer late.Stop()
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
		case <-late.C:
			t.Fatalf("%d of %d stages were completed; the rest waits for a sweep", completed, tasks*5)
		}
	}
	// A claim that finds no slot within 250 ms is given back: on a busy machine, a few.
	if released > tasks*5/100 {
		t.Errorf("%d claims were given back, want next to none", released)
	}
	if ran.Load() != tasks*5 {
		t.Errorf("work ran %d times, want %d", ran.Load(), tasks*5)
	}
	for i, n := range shares {
		if n == 0 {
			t.Errorf("process %d had no share: %v", i, shares)
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

func TestRunnerOfSomeTasksLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	b := setup(t,
		stages.Stage{Name: "one", Workers: 4, Work: noop},
		stages.Stage{Name: "two", Needs: []string{"one"}, Workers: 4, Work: noop},
	)
	others := b.submit()
	mine := b.submit()
	urgent, err := b.Submit(t.Context(), store.Submission{Source: "a", Priority: 9})
	if err != nil {
		t.Fatal(err)
	}
	r := b.start(func(r *stages.Runner) { r.Wakes, r.OnlyTasks = b.listening(), []store.ID{mine} })
	r.wait(t, stages.StageCompleted)
	r.wait(t, stages.StageCompleted)
	r.stop()
	for _, id := range []store.ID{others, urgent.ID} {
		if s := b.task(id).Status; s != store.StatusPending {
			t.Errorf("another task is %s", s)
		}
	}
	if s := b.task(mine).Status; s != store.StatusCompleted {
		t.Errorf("its own task is %s", s)
	}
}
