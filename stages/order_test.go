package stages_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// A process with a long queue goes on from where it was, and must not miss what
// comes in, or becomes urgent, before that.
func TestUrgentTaskIsNextHoweverLongTheQueueIs(t *testing.T) {
	t.Parallel()
	submit := func(b bundle, _ store.ID) store.ID {
		urgent, err := b.Submit(t.Context(), store.Submission{Source: "a", Priority: 1})
		if err != nil {
			t.Fatal(err)
		}
		return urgent.ID
	}
	raise := func(b bundle, last store.ID) store.ID {
		if _, err := b.pool.Exec(t.Context(), "update test_tasks set priority = 1 where id = $1", last); err != nil {
			t.Fatal(err)
		}
		return last
	}
	for name, c := range map[string]struct {
		listens bool
		happens func(b bundle, last store.ID) (urgent store.ID)
	}{
		"submitted":               {true, submit},
		"submitted, with no news": {false, submit},
		"raised by hand":          {true, raise},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := make(chan struct{})
			b := setup(t, stages.Stage{Name: "one", Workers: 2, Work: func(context.Context, *stages.Job) (any, error) {
				<-step
				return nil, nil
			}})
			defer close(step)
			var last store.ID
			for range 20 {
				last = b.submit()
			}
			ear := attentive{took: make(chan struct{}, 1)}
			r := b.start(func(r *stages.Runner) {
				if c.listens {
					ear.runningListener = b.listening()
					r.Wakes = ear
				}
			})
			r.wait(t, stages.StageStarted)
			r.wait(t, stages.StageStarted)
			for range 6 { // it is in the midst of it
				step <- struct{}{}
				r.wait(t, stages.StageStarted)
			}
			select {
			case <-ear.took: // what it heard at the beginning
			default:
			}
			urgent := c.happens(b, last)
			if c.listens {
				<-ear.took
			}
			for range 3 { // as work this quick has two more claimed ahead, at most
				step <- struct{}{}
				if r.wait(t, stages.StageStarted).Task == urgent {
					return
				}
			}
			t.Error("others were started first")
		})
	}
}

// attentive says when the news was taken in.
type attentive struct {
	runningListener
	took chan struct{}
}

func (a attentive) Take() []string {
	news := a.runningListener.Take()
	select {
	case a.took <- struct{}{}:
	default:
	}
	return news
}

// bottleneck is a pipeline whose second stage has one slot, and whose first is so
// much quicker that every turn brings tasks for the second.
func bottleneck(t *testing.T, second stages.Work) bundle {
	return setup(t,
		stages.Stage{Name: "one", Workers: 64, Work: lasting(16 * time.Millisecond)},
		stages.Stage{Name: "two", Needs: []string{"one"}, Work: second, Backoff: stages.Backoff{Base: 50 * time.Millisecond}})
}

func lasting(d time.Duration) stages.Work {
	return func(context.Context, *stages.Job) (any, error) {
		time.Sleep(d)
		return nil, nil
	}
}

// queue submits equal tasks, oldest first.
func (b bundle) queue(n int) []store.ID {
	b.t.Helper()
	var ids []store.ID
	receipts, err := b.SubmitAll(b.t.Context(), slices.Repeat([]store.Submission{{Source: "a"}}, n))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range receipts {
		ids = append(ids, r.ID)
	}
	return ids
}

// A slot may have two tasks claimed ahead, which begin before what is ready since.
const claimedAhead = 2

func TestEqualTasksBeginInTheirOrderBehindABottleneck(t *testing.T) {
	t.Parallel()
	b := bottleneck(t, lasting(2*time.Millisecond))
	ids := b.queue(600)
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	ready := make(map[store.ID]int) // how many have passed each that is ready
	most := 0
	for range ids {
		began := r.wait2(t, ready)
		delete(ready, began)
		for id := range ready {
			if bytes.Compare(id[:], began[:]) < 0 {
				ready[id]++
				most = max(most, ready[id])
			}
		}
	}
	if most > claimedAhead {
		t.Errorf("%d tasks began before one that was submitted earlier and was ready", most)
	}
	r.stop()
	passed := 0 // by the claims
	found, err := invariant.Check(t.Context(), b.pool, b.Graph(), invariant.Options{MaxOvertaking: &passed})
	if err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// wait2 takes events until a task begins the second stage, and notes those which
// become ready for it.
func (r *runner) wait2(t *testing.T, ready map[store.ID]int) store.ID {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case e := <-r.events:
			switch {
			case e.Kind == stages.StageCompleted && e.Stage == "one":
				ready[e.Task] = 0
			case e.Kind == stages.StageStarted && e.Stage == "two":
				return e.Task
			}
		case <-late:
			t.Fatal("nothing began in time")
		}
	}
}

// A turn that is under way when a task becomes ready may claim others, which begin
// before it, and so does what was claimed ahead by then.
const underWay = 4

func TestRetryThatIsDueBeginsBeforeNewerTasks(t *testing.T) {
	t.Parallel()
	var retry store.ID
	quick := lasting(2 * time.Millisecond)
	b := bottleneck(t, func(ctx context.Context, j *stages.Job) (any, error) {
		if j.Task == retry && j.Attempt == 1 {
			return nil, errors.New("no luck")
		}
		return quick(ctx, j)
	})
	retry = b.queue(2000)[0]
	passed := b.passed(retry, func(e stages.Event) time.Duration {
		if e.Kind != stages.AttemptFailed {
			return -1
		}
		return e.RetryIn
	}, nil)
	if passed > underWay {
		t.Errorf("%d newer tasks began after the retry was due", passed)
	}
}

func TestRescuedTaskBeginsBeforeNewerTasks(t *testing.T) {
	t.Parallel()
	b := bottleneck(t, lasting(2*time.Millisecond))
	rescued := b.submit()
	dead, err := b.backend.RegisterWorker(t.Context(), store.Worker{Host: "gone", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var held []engine.Claim
	for range 2 { // both stages
		in := engine.ExchangeRequest{Worker: dead, FreeSlots: []int{1, 1}, ClaimFrom: []bool{len(held) == 0, false}}
		for _, c := range held {
			in.Reports = append(in.Reports, engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed})
		}
		out, err := b.backend.Exchange(t.Context(), in)
		if err != nil || len(out.Claims) != 1 {
			t.Fatalf("%+v, %v", out.Claims, err)
		}
		held = out.Claims
	}
	b.queue(2000)
	passed := b.passed(rescued, func(e stages.Event) time.Duration {
		if e.Kind != stages.AttemptsExpired {
			return -1
		}
		return 0
	}, func() {
		if _, err := b.backend.ExpireWorkers(t.Context(), []store.ID{dead}); err != nil {
			t.Error(err)
		}
	})
	if passed > underWay {
		t.Errorf("%d newer tasks began after what its worker had held was free", passed)
	}
}

// passed runs the pipeline and counts the tasks that begin the second stage before a
// given one does: from when it is ready, which is so long after an event. A few have
// begun when midst is called.
func (b bundle) passed(one store.ID, ready func(stages.Event) time.Duration, midst func()) int {
	type seen struct {
		stages.Event
		at time.Time
	}
	events := make(chan seen, 100_000)
	b.start(func(r *stages.Runner) {
		observe := r.Observe
		r.Wakes, r.SweepInterval = b.listening(), 20*time.Millisecond
		r.Observe = func(e stages.Event) {
			observe(e)
			events <- seen{e, time.Now()}
		}
	})
	var from time.Time
	begun, passed := 0, 0
	for late := time.After(time.Minute); ; {
		select {
		case e := <-events:
			if in := ready(e.Event); in >= 0 && from.IsZero() {
				from = e.at.Add(in)
			}
			if e.Kind != stages.StageStarted || e.Stage != "two" {
				continue
			}
			if begun++; begun == 20 && midst != nil {
				midst()
			}
			switch {
			case from.IsZero():
			case e.Task == one: // a sweep may have found it before this process knew the time
				return passed
			case e.at.After(from):
				passed++
			}
		case <-late:
			b.t.Fatal("it did not begin in time")
		}
	}
}

// Where urgent tasks come faster than they are done, others begin all the same once
// they have waited for AgeAfter, and never without it.
func TestAgedTasksBeginThoughUrgentOnesKeepComing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ageAfter time.Duration
		begin    int
	}{
		"with ageing": {300 * time.Millisecond, 20},
		"without it":  {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, stages.Stage{Name: "one", Work: lasting(2 * time.Millisecond)})
			low := make(map[store.ID]bool)
			for _, id := range b.queue(20) {
				low[id] = true
			}
			urgent := slices.Repeat([]store.Submission{{Source: "u", Priority: 5}}, 2)
			if _, err := b.SubmitAll(t.Context(), slices.Repeat(urgent, 50)); err != nil {
				t.Fatal(err)
			}
			r := b.start(func(r *stages.Runner) {
				r.Wakes, r.SweepInterval, r.AgeAfter = b.listening(), 100*time.Millisecond, c.ageAfter
			})
			begun := 0
			for range 400 {
				e := r.wait(t, stages.StageStarted)
				if low[e.Task] {
					begun++
					if !e.Aged || e.Waited < c.ageAfter {
						t.Errorf("a task of low priority began after %v, aged %t", e.Waited, e.Aged)
					}
				}
				if begun == len(low) {
					break
				}
				if _, err := b.SubmitAll(t.Context(), urgent); err != nil {
					t.Fatal(err)
				}
			}
			if begun != c.begin {
				t.Errorf("%d of %d tasks of low priority began, want %d", begun, len(low), c.begin)
			}
		})
	}
}

// A task that waits in a queue is written once more than one that goes on at once, so
// where all stages are as quick there should be no queue but the first one's.
func TestTasksGoOnWithoutQueuesWhereStagesAreAlike(t *testing.T) {
	t.Parallel()
	const tasks = 4000
	stage := func(name string, needs ...string) stages.Stage {
		return stages.Stage{Name: name, Needs: needs, Workers: 100, Work: noop}
	}
	b := setup(t, stage("one"), stage("two", "one"), stage("three", "one"), stage("four", "two", "three"), stage("five", "four"))
	b.queue(tasks)
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	for done := 0; done < tasks; {
		if r.wait(t, stages.StageCompleted).Stage == "five" {
			done++
		}
	}
	var queued int
	err := b.pool.QueryRow(t.Context(),
		"select coalesce(sum(cardinality(tasks)), 0) from test_outbox where type = 'started' and stage <> 'one'").Scan(&queued)
	if err != nil || queued > tasks {
		t.Errorf("%d claims out of queues behind the first stage for %d tasks, %v", queued, tasks, err)
	}
}
