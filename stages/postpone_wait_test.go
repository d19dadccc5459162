package stages_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// fakeQueue is the database of workers with one stage: tasks in the order of submission, with
// the times that they wait for.
type fakeQueue struct {
	mu        sync.Mutex
	tasks     []fakeTask
	completed chan struct{} // one value per task that was completed
	wake      func()        // notifies the latest worker
}

type fakeTask struct {
	id       store.ID
	due      time.Time
	held     bool
	done     bool
	attempts int // that ended, as the history has them
}

func newFakeQueue(tasks int) *fakeQueue {
	q := &fakeQueue{completed: make(chan struct{}, tasks)}
	for i := range tasks {
		q.tasks = append(q.tasks, fakeTask{id: store.ID{1, byte(i >> 8), byte(i)}})
	}
	return q
}

func (q *fakeQueue) exchange(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range in.Reports {
		q.report(r)
	}
	if in.PromoteDue {
		q.wake() // as the database does
	}
	out := engine.ExchangeResult{Claimed: []int{0}, Wait: noWait(1), NextDue: -1}
	for i := range q.tasks {
		if t := &q.tasks[i]; in.ClaimFrom[0] && t.isReady() && len(out.Claims) < in.FreeSlots[0] {
			t.held = true
			c := engine.Claim{Task: t.id, Attempt: 1}
			_, _ = rand.Read(c.Token[:])
			out.Claims, out.Claimed[0] = append(out.Claims, c), out.Claimed[0]+1
		}
	}
	if in.ClaimFrom[0] {
		var ready bool
		ready, out.NextDue = q.wait()
		out.MoreReady = []bool{ready}
	}
	return out, nil
}

func (q *fakeQueue) sweep(engine.SweepRequest) (out engine.SweepResult, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	out = nothingSwept(1)
	var ready bool
	if ready, out.NextDue = q.wait(); ready {
		out.First[0] = &engine.Position{Task: store.ID{1}}
	}
	return out, nil
}

func (t *fakeTask) isReady() bool { return !t.held && !t.done && !time.Now().Before(t.due) }

// wait says whether tasks are ready, and when the next one is due.
func (q *fakeQueue) wait() (ready bool, next time.Duration) {
	next = -1
	for _, t := range q.tasks {
		ready = ready || t.isReady()
		if wait := time.Until(t.due); wait > 0 && !t.done && (next < 0 || wait < next) {
			next = wait
		}
	}
	return ready, next
}

func (q *fakeQueue) report(r engine.Report) {
	for i := range q.tasks {
		t := &q.tasks[i]
		if t.id != r.Task {
			continue
		}
		t.held, t.done, t.due = false, r.Outcome == engine.Completed, time.Now().Add(r.RetryIn)
		t.attempts++
		if t.done {
			q.completed <- struct{}{}
		}
	}
}

// attempts is how many attempts ended: of the task that had the most, and of all.
func (q *fakeQueue) attempts() (most, all int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tasks {
		most, all = max(most, t.attempts), all+t.attempts
	}
	return most, all
}

func (q *fakeQueue) isDone(task int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tasks[task].done
}

// repeat makes a completed task pending again.
func (q *fakeQueue) repeat(task int) {
	q.mu.Lock()
	q.tasks[task].done = false
	q.mu.Unlock()
	q.wake()
}

// work starts a worker with two slots on the queue until the test ends.
func (q *fakeQueue) work(t *testing.T, work stages.Work) {
	t.Helper()
	wakes := notify.NewWakes()
	p := pipeline(t, work, "one")
	q.wake = func() { wakes.Add(p.Graph().Channel("one")) }
	_, stop := runFake(t, &fakeBackend{exchange: q.exchange, sweep: q.sweep}, p, func(r *stages.Runner) { r.Wakes = wakes })
	t.Cleanup(stop)
	q.wake()
}

// A transcode of hours must not keep the other slots from trying whether a service is back.
func TestPostpone_TriesWhileAnOlderAttemptGoesOn(t *testing.T) {
	t.Parallel()
	const long = 2 * time.Hour
	for name, c := range map[string]struct {
		postpone func(time.Duration, error) error
		after    time.Duration // the other task is completed within
		before   time.Duration // and not before
	}{
		"Postpone":          {stages.Postpone, 30 * time.Second, 0},
		"PostponeUntilIdle": {stages.PostponeUntilIdle, long + time.Minute, long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(2)
				older, refused := q.tasks[0].id, false
				q.work(t, func(ctx context.Context, job *stages.Job) (any, error) {
					if job.Task == older {
						return nil, ctxsleep.For(ctx, long)
					}
					time.Sleep(time.Second)
					if !refused {
						refused = true
						return nil, c.postpone(5*time.Minute, errRefused)
					}
					return nil, nil
				})
				start := time.Now()
				for !q.isDone(1) {
					time.Sleep(time.Second)
				}
				if took := time.Since(start); took > c.after || took < c.before {
					t.Errorf("the other task was completed after %s", took)
				}
			})
		})
	}
}

var errRefused = errors.New("the storage service refuses connections")

func TestPostpone_DelaysTasksByLessThanAThirdOfTheProblem(t *testing.T) {
	for _, c := range []struct {
		lasts          time.Duration
		tasks, workers int
	}{
		{10 * time.Second, 1, 1}, {10 * time.Second, 100, 10},
		{time.Minute, 1, 1}, {time.Minute, 100, 10},
		{10 * time.Minute, 1, 1}, {10 * time.Minute, 100, 10},
		{12 * time.Hour, 1, 10}, {12 * time.Hour, 100, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			const longest = 5 * time.Minute
			q := newFakeQueue(c.tasks)
			end := time.Now().Add(c.lasts)
			for range c.workers {
				q.work(t, func(context.Context, *stages.Job) (any, error) {
					if time.Now().Before(end) {
						return nil, stages.Postpone(longest, errRefused)
					}
					return nil, nil
				})
			}
			time.Sleep(c.lasts)
			if most, all := q.attempts(); most > 250 || all > 200*c.workers {
				t.Errorf("%+v: %d attempts of one task, %d of all", c, most, all)
			}
			for range c.tasks {
				<-q.completed
			}
			if after := time.Since(end); after > min(c.lasts*3/10, longest*6/5)+2*time.Second {
				t.Errorf("%+v: the last task was completed %s after the end", c, after)
			}
		})
	}
}

// Tasks of which one always meets the problem, while others do not.
func TestPostpone_OneTaskAloneHardlyDelaysOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks, takes, slots = 1000, 10 * time.Second, 2
		q := newFakeQueue(1 + tasks)
		started := time.Now()
		q.work(t, func(_ context.Context, j *stages.Job) (any, error) {
			if j.Task == q.tasks[0].id {
				return nil, stages.Postpone(5*time.Minute, errRefused)
			}
			time.Sleep(takes)
			return nil, nil
		})
		for range tasks {
			<-q.completed
		}
		if took := time.Since(started); took > tasks*takes/slots*11/10 {
			t.Errorf("the other tasks took %s", took)
		}
		if most, _ := q.attempts(); most < 20 || most > 60 {
			t.Errorf("the task had %d attempts; want about 40", most)
		}
	})
}

// A part that is done again and again, as in the phases of a stage, and meets a short outage each time.
func TestPostpone_ForgetsAProblemAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		tries := 0
		q.work(t, func(context.Context, *stages.Job) (any, error) {
			time.Sleep(time.Second)
			if tries++; tries%2 == 1 {
				return nil, stages.Postpone(5*time.Minute, errRefused)
			}
			return nil, nil
		})
		for range 20 {
			start := time.Now()
			<-q.completed
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("the task was completed after %s", took)
			}
			q.repeat(0)
		}
	})
}

func TestPostpone_OfALongAttemptIsTriedAgainAtOnceAndThenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		var starts, ends []time.Time
		q.work(t, func(ctx context.Context, _ *stages.Job) (any, error) {
			starts = append(starts, time.Now())
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			ends = append(ends, time.Now())
			return nil, stages.Postpone(5*time.Minute, errRefused)
		})
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		if after := starts[1].Sub(ends[0]); after > 2*time.Second {
			t.Errorf("the second attempt started after %s", after)
		}
		if len(starts) > 16 {
			t.Errorf("%d attempts of an hour each in a day; want one in two hours", len(starts))
		}
	})
}

func TestPostpone_ShortProblemDelaysATaskByASecond(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	b := setup(t, stages.Stage{Name: "one", Work: func(context.Context, *stages.Job) (any, error) {
		if tries.Add(1) == 1 {
			return nil, stages.Postpone(time.Hour, errRefused)
		}
		return nil, nil
	}})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	if e := r.wait(t, stages.ClaimReleased); e.RetryIn < 500*time.Millisecond || e.RetryIn > 2*time.Second {
		t.Errorf("it is retried after %s", e.RetryIn)
	}
	r.wait(t, stages.StageCompleted)
	h := b.history(id)
	if len(h) != 2 || h[0].Class != "postponed" || h[0].RetryAt.Sub(h[0].FinishedAt) > 2*time.Second ||
		h[1].StartedAt.Before(*h[0].RetryAt) {
		t.Errorf("history is %+v", h)
	}
}
