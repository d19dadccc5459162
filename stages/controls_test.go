package stages_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestPause_StopsClaimsUntilResumed(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]store.Pause{"the stage": {Stage: "two"}, "the host": {Host: host}, "everything": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			b := setup(t,
				stages.Stage{Name: "one", Work: func(context.Context, *stages.Job) (any, error) { <-hold; return nil, nil }},
				stages.Stage{Name: "two", Needs: []string{"one"}, Work: noop})
			r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
			id := b.submit()
			r.wait(t, stages.StageStarted)
			must(t, b.Pause(t.Context(), p))
			for r.wait(t, stages.StagePaused).Stage != "two" {
			}
			close(hold) // the running attempt continues
			if e := r.wait(t, stages.StageCompleted); e.Stage != "one" {
				t.Fatalf("stage %s was completed", e.Stage)
			}
			if s := b.status(id, 1); s != store.StatusPending {
				t.Errorf("the next stage is %s", s)
			}
			if _, err := b.Resume(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if e := r.wait(t, stages.StageCompleted); e.Stage != "two" {
				t.Errorf("stage %s was completed", e.Stage)
			}
		})
	}
}

func TestPause_HoldsForAWorkerThatStartsLater(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Work: noop})
	must(t, b.Pause(t.Context(), store.Pause{}))
	id := b.submit()
	var rounds atomic.Int64
	r := b.start(func(r *stages.Runner) {
		r.Wakes, r.SweepInterval = b.listening(), 10*time.Millisecond
		r.OnAlive = func(loop string) {
			if loop == "dispatcher" {
				rounds.Add(1)
			}
		}
	})
	for range 3 { // each causes a wake, and would be claimed without the pause
		b.submit()
		enough := rounds.Load() + 5
		waittest.Until(t, "the dispatcher has run five more rounds", func() bool { return rounds.Load() >= enough })
	}
	if s := b.status(id, 0); s != store.StatusPending {
		t.Errorf("the stage is %s", s)
	}
	if _, err := b.Resume(t.Context(), store.Pause{}); err != nil {
		t.Fatal(err)
	}
	r.wait(t, stages.StageCompleted)
}

func TestDrainWorker_FinishesWorkAndStops(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	b := setup(t, stages.Stage{
		Name: "one", Slots: 1, Work: func(context.Context, *stages.Job) (any, error) { <-hold; return nil, nil },
	})
	l := b.listening()
	events := make(chan stages.Event, 1000)
	ended := make(chan error, 1)
	r := &runner{events: events}
	go func() {
		ended <- stages.Runner{
			Backend: b.backend, Pipeline: b.pipeline, Wakes: l, Grace: time.Nanosecond,
			Observe: func(e stages.Event) { events <- e },
		}.Run(t.Context())
	}()
	w := r.wait(t, stages.WorkerStarted).Worker
	first, second := b.submit(), b.submit()
	r.wait(t, stages.StageStarted)
	must(t, b.DrainWorker(t.Context(), w))
	r.wait(t, stages.WorkerDraining)
	close(hold)
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	if one, two := b.status(first, 0), b.status(second, 0); one != store.StatusCompleted || two != store.StatusPending {
		t.Errorf("the tasks are %s and %s", one, two)
	}
}

// Event readers in other processes are notified of what a worker does.
func TestRunner_NotifiesEventReaders(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Work: noop})
	conn, err := b.pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "listen "+b.Graph().EventsChannel())
	must(t, err)
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	b.submit()
	r.wait(t, stages.StageCompleted)
	for {
		if _, err := conn.Conn().WaitForNotification(t.Context()); err != nil {
			t.Fatal(err)
		}
		events, err := b.Events(t.Context(), store.EventQuery{})
		must(t, err)
		if events[len(events)-1].Type == store.TaskCompleted {
			return
		}
	}
}

// The wait of a task that an operator retries after days counts from the retry.
func TestStageStarted_WaitedCountsFromTheRetry(t *testing.T) {
	t.Parallel()
	for name, retrySQL := range map[string]string{
		"by retry": `select id from cuelight_%s_retry((select id from %[1]s_tasks))`,
		"by hand":  `update %s_tasks set one_status = 'pending'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var succeeds atomic.Bool
			b := setup(t, stages.Stage{Name: "one", Work: func(context.Context, *stages.Job) (any, error) {
				if !succeeds.Load() {
					return nil, stages.Permanent(errors.New("work failed"))
				}
				return nil, nil
			}})
			b.submit() // before the start: its notification would cause an exchange that might claim the retried task
			r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
			r.wait(t, stages.StageDead)
			p := b.Graph().Name()
			for _, sql := range []string{
				`update %s_tasks set created_at = created_at - interval '2 days'`,
				`update %s_attempts set started_at = started_at - interval '2 days', finished_at = finished_at - interval '2 days'`,
			} {
				_, err := b.pool.Exec(t.Context(), fmt.Sprintf(sql, p))
				must(t, err)
			}
			succeeds.Store(true)
			_, err := b.pool.Exec(t.Context(), fmt.Sprintf(retrySQL, p))
			must(t, err)
			e := r.wait(t, stages.StageStarted)
			byRetry := name == "by retry"
			if e.Attempt != 1 || e.Woken && e.Waited > time.Hour || byRetry && (!e.Woken || e.Waited > time.Hour) {
				t.Errorf("woken %v, waited %s", e.Woken, e.Waited)
			}
		})
	}
}

func TestStageStarted_ReportsWaitAndWakes(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	b := setup(t,
		stages.Stage{
			Name: "one", Slots: 1, Work: func(context.Context, *stages.Job) (any, error) { <-hold; return nil, nil },
		},
		stages.Stage{Name: "two", Needs: []string{"one"}, Slots: 2, Work: noop})
	listener := reportingListener{b.listening(), make(chan struct{}, 1)}
	r := b.start(func(r *stages.Runner) { r.Wakes = listener })
	r.wait(t, stages.SweepEnded) // the first one finds what was not announced
	b.submit()
	if e := r.wait(t, stages.StageStarted); !e.Woken || e.Waited <= 0 || e.Waited > 10*time.Second {
		t.Errorf("on an idle system: woken %v, waited %s", e.Woken, e.Waited)
	}
	select {
	case <-listener.taken: // the notification of the first task
	default:
	}
	id := b.submit()
	<-listener.taken
	const wait = 50 * time.Millisecond
	time.Sleep(wait) // the task waits for the slot
	close(hold)
	for seen := 0; seen < 3; seen++ {
		e := r.wait(t, stages.StageStarted)
		switch {
		case e.Stage == "two" && (e.Woken || e.Waited != 0):
			t.Errorf("claimed with the stage it needs: woken %v, waited %s", e.Woken, e.Waited)
		case e.Stage == "one" && (e.Task != id || e.Woken || e.Waited < wait):
			t.Errorf("without a free slot: woken %v, waited %s", e.Woken, e.Waited)
		}
	}
}

// A coordinator grants a claim while its worker stops claiming.
func TestDispatcher_ReleasesClaimsThatArriveWhenItHasStoppedClaiming(t *testing.T) {
	for name, c := range map[string]struct {
		control engine.HeartbeatResult
		result  error // of the running attempt; without one it goes on
	}{
		"it drains":                              {control: engine.HeartbeatResult{Draining: true}},
		"the stage is paused":                    {control: engine.HeartbeatResult{Paused: []bool{true}}},
		"the stage is paused as an attempt ends": {control: engine.HeartbeatResult{Paused: []bool{true}}, result: errors.New("failed")},
		"the stage is suspended":                 {result: stages.Postpone(time.Hour, errors.New("the disk is full"))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				running, granted := engine.Claim{Task: store.ID{1}, Token: store.ID{2}}, engine.Claim{Task: store.ID{3}, Token: store.ID{4}}
				end := make(chan error, 1)
				p := pipeline(t, func(_ context.Context, job *stages.Job) (any, error) {
					if job.Task == granted.Task {
						return nil, nil
					}
					return nil, <-end
				}, "one")
				var controlled atomic.Bool
				answers := make(chan engine.Claim, 2)
				answers <- running
				f := &fakeBackend{
					exchange: func(engine.ExchangeRequest) (out engine.ExchangeResult, err error) {
						if len(answers) > 0 {
							out.Claims = []engine.Claim{<-answers}
						}
						return out, nil
					},
					heartbeat: func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
						if controlled.Load() {
							return c.control, nil
						}
						return engine.HeartbeatResult{}, nil
					},
				}
				w := notify.NewWakes()
				events, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
				w.Add(p.Graph().Channel("one"))
				synctest.Wait()
				answers <- granted
				controlled.Store(true)
				w.Add(p.Graph().ControlChannel())
				time.Sleep(5 * time.Second)
				if c.result != nil {
					end <- c.result
					time.Sleep(time.Second / 2)
				}
				var reports []engine.Report
				for _, r := range f.requests() {
					reports = append(reports, r.Reports...)
				}
				if i := slices.IndexFunc(reports, func(r engine.Report) bool { return r.Token == granted.Token }); i < 0 {
					t.Error("the granted claim is still held")
				} else if reports[i].Outcome != engine.Released {
					t.Errorf("the report of the granted claim is %+v", reports[i])
				}
				kinds := events()
				if n := len(slices.DeleteFunc(kinds, func(k stages.Kind) bool { return k != stages.StageStarted })); n != 1 {
					t.Errorf("%d attempts started, want 1", n)
				}
				if c.result == nil {
					end <- nil
				}
				stop()
			})
		})
	}
}
