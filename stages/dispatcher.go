package stages

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// dispatcher is the only part of a process that changes tasks. One goroutine
// gathers what has happened since its last turn — work that ended, slots that
// are free, stages there is news of — hands all of it to the database in one
// round trip, and sets the claims it gets back to work. There is no delay to
// gather more: a turn's batch is what came up during the turn before.
type dispatcher struct {
	*Runner
	stages []Stage
	byName map[string]int // NOTIFY channel → stage

	mu     sync.Mutex
	worker store.ID

	live   live
	work   sync.WaitGroup
	done   chan finished // never blocks: it holds as many as there are slots
	recall chan struct{} // for the heartbeat: check the claims now

	busy     []int // by stage: slots in use
	look     []lookout
	reports  []finished // ended, not in the database yet
	sweepAt  time.Time
	draining bool
	trouble  trouble
}

// lookout is what the dispatcher knows of one stage's waiting tasks.
type lookout struct {
	due      bool      // something may be waiting
	notUntil time.Time // after a miss: when to look again
	misses   int
	mature   bool      // a time that tasks wait for has come
	nextAt   time.Time // the earliest such time; zero for none
}

func newDispatcher(r *Runner) *dispatcher {
	d := &dispatcher{
		Runner: r,
		stages: r.Pipeline.stages,
		byName: make(map[string]int),
		live:   live{attempts: make(map[store.ID]*attempt)},
		recall: make(chan struct{}, 1),
		busy:   make([]int, len(r.Pipeline.stages)),
		look:   make([]lookout, len(r.Pipeline.stages)),
	}
	slots := 0
	for i, s := range d.stages {
		slots += s.Workers
		d.byName[r.Pipeline.graph.Channel(s.Name)] = i
	}
	d.done = make(chan finished, slots)
	return d
}

// register makes this process known, waiting for the database if need be.
func (d *dispatcher) register(ctx context.Context) error {
	id, err := d.Store.Register(ctx, d.self())
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.worker = id
	d.mu.Unlock()
	d.Observe(Event{Kind: Registered, Worker: id})
	return nil
}

func (d *dispatcher) workerID() store.ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.worker
}

// run turns until ctx is done and nothing is being worked on any more. life
// outlives ctx by the drain.
func (d *dispatcher) run(ctx, life context.Context) {
	drain := newDrain(ctx, d)
	defer drain.stop()
	for {
		d.gather()
		if d.draining && len(d.reports) == 0 && d.live.count() == 0 {
			break
		}
		if drain.overdue() {
			break // the database is away: the claims will lapse
		}
		if turn, worth := d.turn(); worth && d.trouble.over() {
			d.take(life, turn)
			continue
		}
		if !d.draining && d.trouble.over() && !time.Now().Before(d.sweepAt) {
			d.sweep(life)
			continue
		}
		d.wait(drain)
	}
	d.work.Wait()
	d.leave(life)
}

// gather takes in what ended and what there is news of, without waiting.
func (d *dispatcher) gather() {
	for {
		select {
		case f := <-d.done:
			d.finish(f)
			continue
		default:
		}
		break
	}
	if d.Wakes != nil {
		select {
		case <-d.Wakes.C():
			d.news(d.Wakes.Take())
		default:
		}
	}
	now := time.Now()
	for i := range d.look {
		if l := &d.look[i]; !l.nextAt.IsZero() && !now.Before(l.nextAt) {
			l.due, l.mature, l.nextAt = true, true, time.Time{}
		}
	}
}

func (d *dispatcher) news(channels []string) {
	for _, c := range channels {
		if i, ok := d.byName[c]; ok {
			d.look[i].due, d.look[i].misses, d.look[i].notUntil = true, 0, time.Time{}
		} else if c == d.Pipeline.graph.RecallChannel() {
			select {
			case d.recall <- struct{}{}:
			default:
			}
		}
	}
}

// finish frees the slot of an attempt that ended.
func (d *dispatcher) finish(f finished) {
	d.busy[f.claim.Stage]--
	if f.dropped {
		d.live.remove(f.claim.Token)
		d.tell(f, Revoked)
		return
	}
	d.reports = append(d.reports, f)
}

// turn is what to hand in now, and whether that is worth a round trip.
func (d *dispatcher) turn() (store.Turn, bool) {
	t := store.Turn{
		Worker: d.workerID(),
		Free:   make([]int, len(d.stages)),
		Look:   make([]bool, len(d.stages)),
		Mature: make([]bool, len(d.stages)),
	}
	worth := len(d.reports) > 0
	for i := range d.reports {
		t.Reports = append(t.Reports, d.reports[i].report)
	}
	if d.draining {
		return t, worth
	}
	now := time.Now()
	for i := range d.stages {
		l := &d.look[i]
		t.Free[i] = d.stages[i].Workers - d.busy[i]
		if l.due && t.Free[i] > 0 && !now.Before(l.notUntil) {
			t.Look[i], t.Mature[i] = true, l.mature
			worth = true
		}
	}
	return t, worth
}

// take makes one turn and takes in what came of it.
func (d *dispatcher) take(life context.Context, t store.Turn) {
	if !d.reconciled(life) {
		return
	}
	handed := d.reports
	t = d.refresh(t)
	ctx, cancel := context.WithTimeout(life, turnTimeout)
	out, err := d.Store.Turn(ctx, t)
	cancel()
	if err != nil {
		d.turnFailed(life, err)
		return
	}
	d.reports = nil
	d.recovered()
	stale := make(map[store.ID]bool, len(out.Stale))
	for _, r := range out.Stale {
		stale[r.Token] = true
	}
	for _, f := range handed {
		d.settle(f, !stale[f.report.Token])
	}
	d.lookAgain(t, out)
	for _, c := range out.Claims {
		d.start(life, c)
	}
}

// refresh makes the turn's reports those that are still to be handed in:
// reconciling may have found some of them in the history.
func (d *dispatcher) refresh(t store.Turn) store.Turn {
	t.Reports = t.Reports[:0]
	for i := range d.reports {
		t.Reports = append(t.Reports, d.reports[i].report)
	}
	return t
}

// settle ends an attempt for good, once the database has its outcome.
func (d *dispatcher) settle(f finished, held bool) {
	d.live.remove(f.claim.Token)
	if !held {
		f.err = ErrLeaseLost
		d.tell(f, Revoked)
		return
	}
	d.tell(f, f.kind)
	if f.kind != Failed {
		return
	}
	if l, at := &d.look[f.claim.Stage], time.Now().Add(f.report.RetryIn); l.nextAt.IsZero() || at.Before(l.nextAt) {
		l.nextAt = at
	}
}

func (d *dispatcher) tell(f finished, kind Kind) {
	d.Observe(Event{
		Kind: kind, Worker: d.workerID(), Task: f.claim.Task, Stage: f.stage.Name, Attempt: f.claim.Attempt,
		Duration: f.took, RetryIn: f.report.RetryIn, Err: f.err,
	})
}

// lookAgain decides, by stage, whether and when to look again. A stage that
// has ready tasks which a claim with slots to spare did not get was caught
// while another process had the rows locked, to claim a sibling stage of the
// same tasks. No further news will come of them, so it goes again, within a
// millisecond or two at first, and leaves it to the sweep after some tries.
func (d *dispatcher) lookAgain(t store.Turn, out store.Turned) {
	got := make([]int, len(d.stages))
	for _, c := range out.Claims {
		got[c.Stage]++
	}
	for i := range d.look {
		l := &d.look[i]
		if !t.Look[i] {
			l.due = l.due || out.Left[i]
			continue
		}
		l.mature, l.due = false, out.Left[i]
		if out.Next[i] >= 0 {
			l.nextAt = time.Now().Add(out.Next[i])
		}
		if !out.Left[i] || got[i] >= t.Free[i] {
			l.misses, l.notUntil = 0, time.Time{}
			continue
		}
		l.misses++
		if l.misses > maxMisses {
			l.due, l.misses = false, 0
			continue
		}
		pause := time.Millisecond << min(l.misses-1, 6)
		l.notUntil = time.Now().Add(pause + time.Duration(rand.Int64N(int64(pause))))
	}
}

const (
	maxMisses   = 12
	turnTimeout = 30 * time.Second
)

// start sets one claim to work.
func (d *dispatcher) start(life context.Context, c store.Claim) {
	ctx, cancel := context.WithCancelCause(life)
	a := &attempt{claim: c, stage: &d.stages[c.Stage], cancel: cancel, began: time.Now()}
	d.busy[c.Stage]++
	d.live.add(a)
	job := d.job(a)
	d.Observe(Event{Kind: Started, Worker: d.workerID(), Task: c.Task, Stage: a.stage.Name, Attempt: c.Attempt})
	d.work.Go(func() {
		// Reported in a defer, so that the slot comes back even from Work that
		// ends its goroutine.
		f := a.conclude(nil, errGoexit, nil)
		defer func() {
			cancel(nil)
			d.done <- f
		}()
		f = a.work(ctx, job)
	})
}

func (d *dispatcher) job(a *attempt) *Job {
	return &Job{
		Task: a.claim.Task, Source: a.claim.Source, Params: a.claim.Params, UserID: a.claim.UserID,
		Stage: a.stage.Name, Attempt: a.claim.Attempt,
		Results: func(ctx context.Context, stage string) (json.RawMessage, error) {
			return d.Store.Result(ctx, a.claim.Task, stage)
		},
		OnProgress: func(p Progress) {
			a.note(p)
			d.Observe(Event{Kind: Progressed, Task: a.claim.Task, Stage: a.stage.Name, Attempt: a.claim.Attempt, Progress: p})
		},
	}
}

// sweep makes the slow pass.
func (d *dispatcher) sweep(life context.Context) {
	d.sweepAt = time.Now().Add(jitter(d.Runner.Sweep))
	if !d.reconciled(life) {
		return
	}
	in := store.Sweep{GoneAfter: d.GoneAfter}
	for _, s := range d.stages {
		in.MaxAttempts = append(in.MaxAttempts, s.MaxAttempts)
	}
	ctx, cancel := context.WithTimeout(life, turnTimeout)
	defer cancel()
	out, err := d.Store.Sweep(ctx, in)
	if err != nil {
		d.turnFailed(life, err)
		return
	}
	d.recovered()
	if out.Expired > 0 {
		d.Observe(Event{Kind: Expired, Worker: d.workerID(), Count: out.Expired})
	}
	for i := range d.look {
		d.look[i].due = d.look[i].due || out.Left[i]
		if out.Next[i] >= 0 {
			d.look[i].nextAt = time.Now().Add(out.Next[i])
		}
	}
}
