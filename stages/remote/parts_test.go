package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

// dividing is a stage of ten parts. Its Slots are 0 or those of the process.
func dividing(slots int, part stages.Work) stages.Stage {
	return stages.Stage{
		Name: "encode", Slots: slots, Part: part, Backoff: stages.Backoff{Base: 10 * time.Millisecond},
		Divide: func(context.Context, *stages.Job) ([]stages.Part, error) {
			var parts []stages.Part
			for i := range 10 {
				parts = append(parts, stages.Part{Spec: i * i})
			}
			return parts, nil
		},
		Work: func(ctx context.Context, job *stages.Job) (any, error) {
			all, err := stages.PartResults[int](ctx, job)
			total := 0
			for _, n := range all {
				total += n
			}
			return total, err
		},
	}
}

func returnSpec(_ context.Context, job *stages.Job) (any, error) { return stages.Spec[int](job) }

// workOnDatabase runs the pipeline of a stage in a process with the database, without slots for parts.
func (s *site) workOnDatabase(list ...stages.Stage) *runner {
	s.t.Helper()
	p, err := stages.New("test", list...)
	if err != nil {
		s.t.Fatal(err)
	}
	r := &runner{events: make(chan stages.Event, 10000)}
	r.Runner = stages.Runner{
		Pool: s.pool, Pipeline: p, SweepInterval: 500 * time.Millisecond, Observe: func(e stages.Event) { r.events <- e },
	}
	s.run(r)
	r.wait(s.t, stages.WorkerStarted)
	return r
}

func TestRemoteWorkers_DoThePartsThatAProcessWithTheDatabaseDividesAndJoins(t *testing.T) {
	t.Parallel()
	s := setup(t, dividing(2, returnSpec))
	only, err := stages.New("test", stages.Stage{Name: "encode", Slots: 2, Part: returnSpec})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.work(func(_ *remote.ClientOptions, r *stages.Runner) { r.Pipeline = only })
	}
	local := s.workOnDatabase(dividing(-1, refuse))
	task := s.submit("film")
	if e := local.wait(t, stages.StageDivided); e.Count != 10 {
		t.Errorf("the event is %+v", e)
	}
	local.wait(t, stages.StageCompleted)
	raw, err := s.Result(context.Background(), task, "encode")
	if err != nil || string(raw) != "285" {
		t.Errorf("the result is %s, %v", raw, err)
	}
	history, err := s.History(context.Background(), task)
	if err != nil {
		t.Fatal(err)
	}
	workers := map[store.ID]int{}
	for _, a := range history {
		if a.Part > 0 {
			workers[a.Worker]++
		}
	}
	if len(workers) == 0 || len(history) != 12 {
		t.Errorf("the history is %+v", history)
	}
}

// refuse is the Part of a process without slots for parts.
func refuse(context.Context, *stages.Job) (any, error) {
	return nil, errors.New("this process has no slots")
}

// A worker that is killed costs the parts that it had in hand.
func TestRemoteWorkers_LoseOnlyThePartsInHandWhenOneIsKilled(t *testing.T) {
	t.Parallel()
	started := make(chan int, 100)
	block := func(ctx context.Context, job *stages.Job) (any, error) {
		started <- job.Part
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := setup(t, dividing(2, returnSpec))
	s.workOnDatabase(dividing(-1, refuse))
	first, err := stages.New("test", stages.Stage{Name: "encode", Slots: 2, Part: block})
	if err != nil {
		t.Fatal(err)
	}
	s.work(func(_ *remote.ClientOptions, r *stages.Runner) { r.Pipeline, r.Lease = first, 2*time.Second })
	task := s.submit("film")
	inHand := []int{<-started, <-started}
	if _, err := s.pool.Exec(context.Background(), `update test_workers set lost_at = now() where principal = 'key-1'`); err != nil {
		t.Fatal(err)
	}
	second, err := stages.New("test", stages.Stage{Name: "encode", Slots: 2, Part: returnSpec})
	if err != nil {
		t.Fatal(err)
	}
	other := s.work(func(o *remote.ClientOptions, r *stages.Runner) { o.Key, r.Pipeline = "key-2", second })
	for range 10 {
		other.wait(t, stages.PartCompleted)
	}
	history, err := s.History(context.Background(), task)
	if err != nil {
		t.Fatal(err)
	}
	attempts := map[int]int{}
	for _, a := range history {
		if a.Part > 0 {
			attempts[a.Part]++
		}
	}
	for part, n := range attempts {
		if slices.Contains(inHand, part) != (n == 2) {
			t.Errorf("part %d was tried %d times; %v were in hand", part, n, inHand)
		}
	}
}

// A process without slots for parts makes those ready, when it sweeps, whose time has come.
func TestRemoteWorkers_DoPartsThatBecameDueWithoutAnyWorker(t *testing.T) {
	t.Parallel()
	s := setup(t, dividing(2, returnSpec))
	local := s.workOnDatabase(dividing(-1, refuse))
	s.submit("film")
	local.wait(t, stages.StageDivided)
	const wait = `update test_steps set status = 'waiting', run_at = now() + interval '1 s' where part > 0`
	if _, err := s.pool.Exec(t.Context(), wait); err != nil {
		t.Fatal(err)
	}
	wantBacklog := func(n int) {
		t.Helper()
		waittest.Until(t, fmt.Sprintf("the backlog is %d", n), func() bool {
			var backlog int
			if err := s.pool.QueryRow(t.Context(), `select cuelight_test_backlog('encode')`).Scan(&backlog); err != nil {
				t.Fatal(err)
			}
			return backlog == n
		})
	}
	wantBacklog(0)
	wantBacklog(10)
	only, err := stages.New("test", stages.Stage{Name: "encode", Slots: 2, Part: returnSpec})
	if err != nil {
		t.Fatal(err)
	}
	s.work(func(_ *remote.ClientOptions, r *stages.Runner) { r.Pipeline = only })
	local.wait(t, stages.StageCompleted)
	wantBacklog(0)
}
