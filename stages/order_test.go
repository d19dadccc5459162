package stages_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// A worker with a long queue continues from its last position. It must not miss a task
// before that position that is submitted or becomes urgent.
func TestPriority_UrgentTaskIsNextDespiteALongQueue(t *testing.T) {
	t.Parallel()
	submitUrgent := func(b bundle, _ store.ID) store.ID {
		urgent, err := b.Submit(t.Context(), store.Submission{Source: "a", Priority: 1})
		if err != nil {
			t.Fatal(err)
		}
		return urgent.ID
	}
	raisePriority := func(b bundle, last store.ID) store.ID {
		if _, err := b.pool.Exec(t.Context(), "update test_tasks set priority = 1 where id = $1", last); err != nil {
			t.Fatal(err)
		}
		return last
	}
	for name, c := range map[string]struct {
		listens bool
		change  func(b bundle, last store.ID) (urgent store.ID)
	}{
		"submitted":                     {true, submitUrgent},
		"submitted, without a listener": {false, submitUrgent},
		"raised by hand":                {true, raisePriority},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := make(chan struct{})
			b := setup(t, stages.Stage{Name: "one", Slots: 2, Work: func(context.Context, *stages.Job) (any, error) {
				<-step
				return nil, nil
			}})
			defer close(step)
			var last store.ID
			for range 20 {
				last = b.submit()
			}
			listener := reportingListener{taken: make(chan struct{}, 1)}
			r := b.start(func(r *stages.Runner) {
				if c.listens {
					listener.runningListener = b.listening()
					r.Wakes = listener
				}
			})
			r.wait(t, stages.StageStarted)
			r.wait(t, stages.StageStarted)
			for range 6 { // until it continues from a position
				step <- struct{}{}
				r.wait(t, stages.StageStarted)
			}
			select {
			case <-listener.taken: // the first notifications
			default:
			}
			urgent := c.change(b, last)
			if c.listens {
				<-listener.taken
			}
			for range 3 { // at most two claims are prefetched for work this quick
				step <- struct{}{}
				if r.wait(t, stages.StageStarted).Task == urgent {
					return
				}
			}
			t.Error("three other tasks started first")
		})
	}
}

// reportingListener sends a signal when its notifications are taken.
type reportingListener struct {
	runningListener
	taken chan struct{}
}

func (l reportingListener) Take() []notify.Wake {
	channels := l.runningListener.Take()
	select {
	case l.taken <- struct{}{}:
	default:
	}
	return channels
}

// setupBottleneck sets up a pipeline whose second stage has one slot. The first stage is so
// much quicker that every exchange makes tasks ready for the second.
func setupBottleneck(t *testing.T, second stages.Work) bundle {
	return setup(t,
		stages.Stage{Name: "one", Slots: 64, Work: workTaking(16 * time.Millisecond)},
		stages.Stage{Name: "two", Needs: []string{"one"}, Work: second, Backoff: stages.Backoff{Base: 50 * time.Millisecond}})
}

// submitMany submits n equal tasks and returns their ids, oldest first.
func (b bundle) submitMany(n int) []store.ID {
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

// maxPrefetched is how many prefetched tasks of a slot start before one that became
// ready after them.
const maxPrefetched = 2

func TestOrder_IsKeptBehindABottleneck(t *testing.T) {
	t.Parallel()
	b := setupBottleneck(t, workTaking(2*time.Millisecond))
	ids := b.submitMany(600)
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	ready := make(map[store.ID]int) // how many tasks overtook each ready one
	most := 0
	for range ids {
		next := r.waitForSecondStage(t, ready)
		delete(ready, next)
		for id := range ready {
			if bytes.Compare(id[:], next[:]) < 0 {
				ready[id]++
				most = max(most, ready[id])
			}
		}
	}
	if most > maxPrefetched {
		t.Errorf("%d tasks started before a ready one that was submitted earlier", most)
	}
	r.stop()
	overtaking := 0 // the limit for claims
	found, err := invariant.Check(t.Context(), b.pool, b.Graph(), invariant.Options{MaxOvertaking: &overtaking})
	if err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// waitForSecondStage receives events until a task starts the second stage, and adds to
// ready the tasks that become ready for it.
func (r *runner) waitForSecondStage(t *testing.T, ready map[store.ID]int) store.ID {
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
			t.Fatal("no task started within 30 s")
		}
	}
}

// maxOvertaking is how many tasks may start before an older one that becomes ready: two that were prefetched, two of the
// exchange that is under way, and one that was started at that moment.
const maxOvertaking = 5

func TestOrder_DueRetryStartsBeforeNewerTasks(t *testing.T) {
	t.Parallel()
	var retry store.ID
	quick := workTaking(2 * time.Millisecond)
	b := setupBottleneck(t, func(ctx context.Context, j *stages.Job) (any, error) {
		if j.Task == retry && j.Attempt == 1 {
			return nil, errors.New("work failed")
		}
		return quick(ctx, j)
	})
	retry = b.submitMany(2000)[0]
	overtaking := b.countOvertaking(retry, func(e stages.Event) time.Duration {
		if e.Kind != stages.AttemptFailed {
			return -1
		}
		return e.RetryIn
	}, nil)
	if overtaking > maxOvertaking {
		t.Errorf("%d newer tasks started after the retry was due", overtaking)
	}
}

func TestOrder_ExpiredTaskStartsBeforeNewerTasks(t *testing.T) {
	t.Parallel()
	b := setupBottleneck(t, workTaking(2*time.Millisecond))
	rescued := b.submit()
	dead, _, err := b.backend.RegisterWorker(t.Context(), store.Worker{Host: "gone", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var held []engine.Claim
	for range 2 { // both stages
		in := engine.ExchangeRequest{Worker: dead, FreeSlots: []int{1, 1}, ClaimFrom: []bool{len(held) == 0, len(held) > 0}}
		for _, c := range held {
			in.Reports = append(in.Reports, engine.Report{
				Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed,
			})
		}
		out, err := b.backend.Exchange(t.Context(), in)
		if err != nil || len(out.Claims) != 1 {
			t.Fatalf("%+v, %v", out.Claims, err)
		}
		held = out.Claims
	}
	b.submitMany(2000)
	overtaking := b.countOvertaking(rescued, func(e stages.Event) time.Duration {
		if e.Kind != stages.AttemptsExpired {
			return -1
		}
		return 0
	}, func() {
		if _, err := b.backend.ExpireWorkers(t.Context(), []store.ID{dead}); err != nil {
			t.Error(err)
		}
	})
	if overtaking > maxOvertaking {
		t.Errorf("%d newer tasks started after the lost worker's claim had expired", overtaking)
	}
}

// countOvertaking runs the pipeline and counts the tasks that start the second stage
// between the moment when the given task is ready and its start. The task is ready the
// returned time after the event for which ready returns 0 or more. afterSome, if not
// nil, is called when 20 tasks have started the second stage.
func (b bundle) countOvertaking(task store.ID, ready func(stages.Event) time.Duration, afterSome func()) int {
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
	started, overtaking := 0, 0
	for late := time.After(time.Minute); ; {
		select {
		case e := <-events:
			if in := ready(e.Event); in >= 0 && from.IsZero() {
				from = e.at.Add(in)
			}
			if e.Kind != stages.StageStarted || e.Stage != "two" {
				continue
			}
			if started++; started == 20 && afterSome != nil {
				afterSome()
			}
			switch {
			case e.Task == task && e.Attempt > 1: // a sweep may have found it before this process knew the time
				return overtaking
			case from.IsZero():
			case e.at.After(from):
				overtaking++
			}
		case <-late:
			b.t.Fatal("the task did not start within a minute")
		}
	}
}

// Where urgent tasks arrive faster than they are done, others start once they have waited
// for AgeAfter; without AgeAfter they never do.
func TestAgeing_StartsTasksDespiteUrgentOnes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ageAfter time.Duration
		starts   int
	}{
		"with ageing": {300 * time.Millisecond, 20},
		"without it":  {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, stages.Stage{Name: "one", Work: workTaking(2 * time.Millisecond)})
			low := make(map[store.ID]bool)
			for _, id := range b.submitMany(20) {
				low[id] = true
			}
			urgent := slices.Repeat([]store.Submission{{Source: "u", Priority: 5}}, 2)
			if _, err := b.SubmitAll(t.Context(), slices.Repeat(urgent, 50)); err != nil {
				t.Fatal(err)
			}
			r := b.start(func(r *stages.Runner) {
				r.Wakes, r.SweepInterval, r.AgeAfter = b.listening(), 100*time.Millisecond, c.ageAfter
			})
			started := 0
			for range 400 {
				e := r.wait(t, stages.StageStarted)
				if low[e.Task] {
					started++
					if !e.Aged || e.Waited < c.ageAfter {
						t.Errorf("a task of low priority started after %v, aged %t", e.Waited, e.Aged)
					}
				}
				if started == len(low) {
					break
				}
				if _, err := b.SubmitAll(t.Context(), urgent); err != nil {
					t.Fatal(err)
				}
			}
			if started != c.starts {
				t.Errorf("%d of %d tasks of low priority started, want %d", started, len(low), c.starts)
			}
		})
	}
}

// A task gets one slot for its parts whenever none was started for AgeAfter, however many parts of urgent tasks wait.
func TestAgeing_StartsPartsDespiteUrgentOnes(t *testing.T) {
	t.Parallel()
	const ageAfter = 300 * time.Millisecond
	divide := func(ctx context.Context, job *stages.Job) ([]stages.Part, error) {
		if job.Source == "urgent" {
			return numbered(5000)(ctx, job)
		}
		return numbered(3)(ctx, job)
	}
	b := setup(t, stages.Stage{Name: "one", Divide: divide, Part: workTaking(2 * time.Millisecond), Work: noop})
	urgent, err := b.Submit(t.Context(), store.Submission{Source: "urgent", Priority: 5})
	must(t, err)
	r := b.start(func(r *stages.Runner) {
		r.Wakes, r.SweepInterval, r.AgeAfter = b.listening(), 100*time.Millisecond, ageAfter
	})
	r.wait(t, stages.StageDivided)
	low := b.submitMany(5)
	last := make(map[store.ID]time.Time)
	for started := 0; started < 2*len(low); {
		e := r.wait(t, stages.StageStarted)
		switch {
		case e.Part == 0:
			last[e.Task] = time.Now()
		case e.Task == urgent.ID:
			if e.Part == 5000 {
				t.Fatalf("%d parts of low priority started before the last urgent one", started)
			}
		default:
			started++
			if waited := time.Since(last[e.Task]); !e.Aged || waited < ageAfter/2 {
				t.Errorf("part %d of a task of low priority started after %v, aged %t", e.Part, waited, e.Aged)
			}
			last[e.Task] = time.Now()
		}
	}
}

// A task that waits in a queue costs one more write than a task that continues at once.
// Where all stages are equally quick, only the first should have a queue.
func TestContinue_KeepsQueuesShortBetweenEqualStages(t *testing.T) {
	t.Parallel()
	const tasks = 4000
	stage := func(name string, needs ...string) stages.Stage {
		return stages.Stage{Name: name, Needs: needs, Slots: 100, Work: noop}
	}
	b := setup(t, stage("one"), stage("two", "one"), stage("three", "one"), stage("four", "two", "three"),
		stage("five", "four"))
	b.submitMany(tasks)
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
		t.Errorf("%d claims from queues after the first stage, for %d tasks, %v", queued, tasks, err)
	}
}

func TestRequires_LeavesAStageToWorkersThatOfferIt(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "fetch", Work: noop},
		stages.Stage{Name: "encode", Needs: []string{"fetch"}, Requires: []string{"gpu", "h264_nvenc"}, Work: noop})
	id := b.submit()
	plain := b.start(func(r *stages.Runner) {
		r.Wakes, r.Capabilities = b.listening(), json.RawMessage(`{"labels": ["gpu"]}`)
	})
	plain.wait(t, stages.StageCompleted)
	b.start(func(r *stages.Runner) {
		r.Name, r.Capabilities = "encoder", json.RawMessage(`{"labels": ["gpu"], "encoders": ["h264_nvenc"], "cores": 8}`)
	}).wait(t, stages.StageCompleted)
	history := b.history(id)
	if len(history) != 2 || history[1].Stage != "encode" || history[1].WorkerName != "encoder" {
		t.Errorf("the history is %+v", history)
	}
	all, err := store.New(b.pool, b.pipeline.Graph()).Workers(t.Context(), false)
	must(t, err)
	want := []string{`{"labels": ["gpu"], "stages": ["fetch"]}`,
		`{"cores": 8, "labels": ["gpu"], "stages": ["fetch", "encode"], "encoders": ["h264_nvenc"]}`}
	for _, w := range all {
		if !slices.Contains(want, string(w.Capabilities)) {
			t.Errorf("the capabilities of worker %s are %s", w.Name, w.Capabilities)
		}
	}
}

func TestUsers_ASingleTaskStartsSoonBehindManyOfAnotherUser(t *testing.T) {
	t.Parallel()
	step := make(chan struct{})
	b := setup(t, stages.Stage{Name: "one", Work: func(context.Context, *stages.Job) (any, error) {
		<-step
		return nil, nil
	}})
	defer close(step)
	submit := func(user string) store.ID {
		receipt, err := b.Submit(t.Context(), store.Submission{Source: "a", UserID: user})
		must(t, err)
		return receipt.ID
	}
	for range 30 {
		submit("max")
	}
	listener := reportingListener{taken: make(chan struct{}, 1)}
	r := b.start(func(r *stages.Runner) {
		listener.runningListener = b.listening()
		r.Wakes = listener
	})
	r.wait(t, stages.StageStarted)
	for range 6 { // until it continues from a position
		step <- struct{}{}
		r.wait(t, stages.StageStarted)
	}
	select {
	case <-listener.taken: // the first notifications
	default:
	}
	single := submit("anna")
	<-listener.taken
	for range 4 { // at most two claims are prefetched for work this quick
		step <- struct{}{}
		if r.wait(t, stages.StageStarted).Task == single {
			return
		}
	}
	t.Error("the task was not among the next four")
}

func TestUsers_StartTheNextTaskWhereOneOfTheirLimitHasFinished(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int32
	work := func(context.Context, *stages.Job) (any, error) {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(2 * time.Millisecond) // so that others could run meanwhile
		running.Add(-1)
		return nil, nil
	}
	b := setup(t, stages.Stage{Name: "one", Slots: 4, Work: work}, stages.Stage{Name: "two", Needs: []string{"one"}, Slots: 4, Work: work})
	_, err := b.SubmitAll(t.Context(), slices.Repeat([]store.Submission{{Source: "a", UserID: "max"}}, 20))
	must(t, err)
	r := b.start(func(r *stages.Runner) { r.MaxRunningPerUser = 2 })
	for range 40 {
		r.wait(t, stages.StageCompleted)
	}
	if most.Load() > 2 {
		t.Errorf("%d ran at once, want at most 2", most.Load())
	}
}
