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
	touch    touch
}

// touch is since when the database has answered everything, to the dispatcher
// and to the heartbeat.
type touch struct {
	mu    sync.Mutex
	since time.Time
}

func (t *touch) lost() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Time{}
}

// kept is for how long, this answer included.
func (t *touch) kept() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		t.since = time.Now()
	}
	return time.Since(t.since)
}

// lookout is what the dispatcher knows of one stage's waiting tasks.
type lookout struct {
	due      bool      // something may be waiting
	notUntil time.Time // after a miss: when to look again
	misses   int
	mature   bool      // a time that tasks wait for has come
	nextAt   time.Time // the earliest such time; zero for none
	late     int       // how often in a row what was due could not be made ready
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
		drain.look()
		if d.draining && len(d.reports) == 0 && d.live.count() == 0 {
			break
		}
		if drain.overdue() {
			break // the database is away: the claims will lapse
		}
		if !d.trouble.over() {
			d.wait(drain)
		} else if !d.draining && !time.Now().Before(d.sweepAt) {
			d.sweep(life)
		} else if turn, worth := d.turn(); worth {
			d.take(life, turn)
		} else {
			d.wait(drain)
		}
	}
	d.work.Wait()
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
		Worker:  d.workerID(),
		Reports: d.reportsDue(),
		Free:    make([]int, len(d.stages)),
		Look:    make([]bool, len(d.stages)),
		Mature:  make([]bool, len(d.stages)),
	}
	worth := len(t.Reports) > 0
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

// reportsDue are all but those whose rows were locked a moment ago.
func (d *dispatcher) reportsDue() []store.Report {
	var due []store.Report
	now := time.Now()
	for i := range d.reports {
		if !now.Before(d.reports[i].next) {
			due = append(due, d.reports[i].report)
		}
	}
	return due
}

// take makes one turn and takes in what came of it.
func (d *dispatcher) take(life context.Context, t store.Turn) {
	if d.trouble.uncertain {
		if !d.reconciled(life) {
			return
		}
		t.Reports = d.reportsDue() // some were found in the history
	}
	ctx, cancel := context.WithTimeout(life, turnTimeout)
	out, err := d.Store.Turn(ctx, t)
	cancel()
	if err != nil {
		d.turnFailed(life, err)
		return
	}
	d.recovered()
	d.handedIn(t, out)
	d.lookAgain(t, out)
	for _, c := range out.Claims {
		d.start(life, c)
	}
}

// handedIn settles the reports of a turn, and keeps those whose rows somebody
// else had locked. They come again after a millisecond or two, for so long
// does another turn take, and then less and less often.
func (d *dispatcher) handedIn(t store.Turn, out store.Turned) {
	const reported, stale, locked = 1, 2, 3
	fate := make(map[store.ID]int, len(t.Reports))
	for _, r := range t.Reports {
		fate[r.Token] = reported
	}
	for _, r := range out.Stale {
		fate[r.Token] = stale
	}
	for _, r := range out.Locked {
		fate[r.Token] = locked
	}
	all := d.reports
	d.reports = nil
	for _, f := range all {
		switch fate[f.report.Token] {
		case reported:
			d.settle(f, true)
		case stale:
			d.settle(f, false)
		case locked:
			f.next = time.Now().Add(jitter(3 * time.Millisecond / 2 << min(f.tries, 9)))
			f.tries++
			d.reports = append(d.reports, f)
		default: // not of this turn
			d.reports = append(d.reports, f)
		}
	}
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
		d.ripen(i, t.Mature[i], out.Next[i])
		l.due = out.Left[i]
		if !out.Left[i] || got[i] >= out.Asked[i] {
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

// ripen sets the timer of a stage on the earliest time that a task waits for.
// Where that has come and yet the turn could not make the task ready, it is
// tried again, less and less often.
func (d *dispatcher) ripen(stage int, tried bool, next time.Duration) {
	l := &d.look[stage]
	l.mature, l.nextAt = false, time.Time{}
	if next < 0 {
		l.late = 0
		return
	}
	if next > 0 || !tried {
		l.late = 0
	} else {
		l.late = min(l.late+1, 8)
		next = 4 * time.Millisecond << l.late
	}
	l.nextAt = time.Now().Add(next)
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
			p = p.clean()
			a.note(p)
			d.Observe(Event{Kind: Progressed, Task: a.claim.Task, Stage: a.stage.Name, Attempt: a.claim.Attempt, Progress: p})
		},
	}
}

// sweep makes the slow pass, and makes sure that the database and this process
// have the same idea of which claims are its own.
func (d *dispatcher) sweep(life context.Context) {
	d.sweepAt = time.Now().Add(jitter(d.Runner.Sweep))
	d.trouble.uncertain = true
	if !d.reconciled(life) {
		return
	}
	in := store.Sweep{Worker: d.workerID()}
	// After a time without the database all others seem to be silent.
	if d.touch.kept() >= d.GoneAfter {
		in.GoneAfter = d.GoneAfter
	}
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
		d.ripen(i, true, out.Next[i])
	}
}
