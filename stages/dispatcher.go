package stages

import (
	"context"
	"runtime"
	"slices"
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
	stages    []Stage
	byChannel map[string]int // NOTIFY channel → stage

	mu     sync.Mutex
	worker store.ID

	haste context.Context // ends when nothing may take long any more

	live    live
	work    sync.WaitGroup
	done    chan finished // never blocks: it holds as many as there are slots
	over    chan store.ID // tokens of attempts that were told to end and did not; never blocks either
	recall  chan struct{} // for the heartbeat: check the claims now
	gone    chan struct{} // from the heartbeat: somebody went away
	deaf    chan struct{} // from the heartbeat: no news comes in
	orders  chan orders   // from the heartbeat: the newest
	wrote   chan struct{} // for the herald: there are new events
	retired chan struct{} // a drain has begun with work under way

	querySlots chan struct{} // taken by the queries of work

	paused    []bool        // by stage: nothing is to be claimed
	suspended []suspension  // by stage
	busy      []int         // by stage: slots in use
	ahead     []ahead       // by stage
	pace      time.Duration // how long a turn takes, on average of late
	look      []lookout
	reports   []finished // ended, not in the database yet
	spare     []finished // the room of what was there before: two take turns
	stubborn  []*attempt // given up, but still in their slots
	turns     int
	fresh     int // attempts started by the latest turn that may end at once
	sweepAt   time.Time
	swept     bool // at least once
	draining  bool
	trouble   trouble
	touch     touch
	left      map[store.ID]bool // workers of which it was told that they left a transaction open
}

func newDispatcher(r *Runner) *dispatcher {
	d := &dispatcher{
		Runner:    r,
		stages:    r.Pipeline.stages,
		byChannel: make(map[string]int),
		live:      live{attempts: make(map[store.ID]*attempt)},
		recall:    make(chan struct{}, 1),
		gone:      make(chan struct{}, 1),
		deaf:      make(chan struct{}, 1),
		orders:    make(chan orders, 1),
		wrote:     make(chan struct{}, 1),
		retired:   make(chan struct{}, 1),
		paused:    make([]bool, len(r.Pipeline.stages)),
		suspended: make([]suspension, len(r.Pipeline.stages)),
		busy:      make([]int, len(r.Pipeline.stages)),
		ahead:     make([]ahead, len(r.Pipeline.stages)),
		look:      make([]lookout, len(r.Pipeline.stages)),
		left:      make(map[store.ID]bool),
	}
	slots := 0
	for i, s := range d.stages {
		slots += s.Workers
		d.byChannel[r.Pipeline.graph.Channel(s.Name)] = i
	}
	d.done, d.over = make(chan finished, slots), make(chan store.ID, 2*slots)
	d.querySlots = make(chan struct{}, maxConcurrentQueries(r.Store))
	return d
}

// register makes this process known, under a name it never had before.
func (d *dispatcher) register(ctx context.Context) error {
	self := d.self()
	// Once it is registered nothing may go wrong any more, or it would be another
	// that is soon found to have gone away.
	paused, err := d.Store.Paused(ctx, self.Host)
	if err != nil {
		return err
	}
	id, err := d.Store.Register(ctx, self)
	if err != nil {
		return err
	}
	d.heed(orders{paused: paused})
	d.mu.Lock()
	d.worker = id
	d.mu.Unlock()
	poke(d.wrote, true)
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
func (d *dispatcher) run(ctx, life context.Context) error {
	drain := newDrain(ctx, d)
	defer drain.stop()
	defer d.hasten(ctx)()
	for {
		d.Pulse("dispatcher")
		d.gather()
		drain.look()
		if d.draining && len(d.reports) == 0 && d.live.count() == 0 {
			break
		}
		if drain.overdue() {
			break // what could not be handed in will lapse
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
	if len(d.stubborn) > 0 {
		return stubbornError(d.stubborn)
	}
	d.work.Wait()
	return nil
}

// soon is how long, and yields how often at the most, the dispatcher lets work go
// on that it has just started, before it goes round. Work that does next to
// nothing ends within it, two siblings at almost the same instant; to go round
// with the first would cost the second a turn of its own, which takes ten times as
// long. That is for few: among many it does not matter which ones come a turn
// later. Work that computes may keep the processor for longer at the first yield.
const soon, yields, few = 50 * time.Microsecond, 250, 8

// gather takes in what ended and what there is news of, without waiting.
func (d *dispatcher) gather() {
	runtime.Gosched() // work that ends at the same instant should come in the same turn
	d.collect()
	began := time.Now()
	for i := 0; d.fresh > 0 && d.fresh <= few && i < yields && time.Since(began) < soon; i++ {
		runtime.Gosched()
		d.collect()
	}
	d.fresh = 0
	select {
	case o := <-d.orders:
		d.obey(o) // before anything is claimed
	default:
	}
	select {
	case <-d.news():
		d.hear(d.Wakes.Take())
	case <-d.gone:
		d.sweepAt = time.Now()
	case <-d.deaf:
		d.guess()
	default:
	}
	now := time.Now()
	d.thin(now)
	for i := range d.look {
		d.look[i].come(now)
	}
}

// collect takes in what has ended.
func (d *dispatcher) collect() {
	for {
		select {
		case f := <-d.done:
			d.finish(f)
		case token := <-d.over:
			d.giveUp(token)
		default:
			return
		}
	}
}

// news yields a value when there is news; never where there is none.
func (d *dispatcher) news() <-chan struct{} {
	if d.Wakes == nil {
		return nil
	}
	return d.Wakes.C()
}

// hear takes in the news.
func (d *dispatcher) hear(channels []string) {
	for _, c := range channels {
		if i, ok := d.byChannel[c]; ok {
			d.look[i].wake(d.free(i) > 0)
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
	if f.kind == Completed {
		d.ahead[f.claim.Stage].learn(f.took)
	}
	d.learnTrouble(f)
	d.refill(f.claim.Stage)
	if f.turn == d.turns && d.fresh > 0 {
		d.fresh--
	}
	if i := slices.Index(d.stubborn, f.attempt); i >= 0 {
		d.stubborn = slices.Delete(d.stubborn, i, i+1) // what became of it has been said
		return
	}
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
		After:   make([]store.Place, len(d.stages)),
		Aged:    make([][]store.ID, len(d.stages)),
		Only:    d.Only,
	}
	worth := len(t.Reports) > 0
	if d.draining {
		return t, worth
	}
	now := time.Now()
	for i := range d.stages {
		l := &d.look[i]
		t.Free[i] = d.free(i)
		if l.due && t.Free[i] > 0 && !now.Before(l.notUntil) {
			t.Look[i], t.Mature[i] = true, l.mature
			t.Aged[i] = l.aged[:min(len(l.aged), t.Free[i])]
			if !l.mature && d.hears() && now.Before(l.backAt) {
				t.After[i] = l.after // news of what comes before it would be heard
			}
			worth = true
		}
	}
	return t, worth
}

// reportsDue are all but those whose rows were locked a moment ago.
func (d *dispatcher) reportsDue() []store.Report {
	due := make([]store.Report, 0, len(d.reports))
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
	ctx, cancel := d.trip(life)
	began := time.Now()
	out, err := d.Store.Turn(ctx, t)
	cancel()
	if err != nil {
		d.turnFailed(life, err)
		return
	}
	d.recovered()
	took := time.Since(began)
	d.pace += (took - d.pace) / 8
	poke(d.wrote, len(t.Reports)+len(out.Claims) > 0)
	d.handedIn(t, out)
	woken := d.woken(t)
	d.lookAgain(t, out, took)
	d.turns++
	for _, c := range out.Claims {
		// What waited for longer than the sweeps are apart was hidden from them: its
		// row was changed by hand, and when is not known.
		d.accept(life, c, woken[c.Stage] && c.Waited > 0 && c.Waited < 2*d.Sweep)
	}
}

// handedIn settles the reports of a turn, and keeps those whose rows somebody
// else had locked. They come again after a millisecond or two, for so long
// does another turn take, and then less and less often.
func (d *dispatcher) handedIn(t store.Turn, out store.Turned) {
	const reported, stale, cancelled, locked = 1, 2, 3, 4
	fate := make(map[store.ID]int, len(t.Reports))
	for _, r := range t.Reports {
		fate[r.Token] = reported
	}
	for _, r := range out.Stale {
		fate[r.Token] = stale
		if r.Cancelled {
			fate[r.Token] = cancelled
		}
	}
	for _, r := range out.Locked {
		fate[r.Token] = locked
	}
	all := d.reports
	d.reports = d.spare[:0]
	for _, f := range all {
		switch fate[f.report.Token] {
		case reported:
			d.settle(f)
		case stale:
			d.drop(f, ErrLeaseLost)
		case cancelled:
			d.drop(f, ErrCancelled)
		case locked:
			f.next = time.Now().Add(jitter(3 * time.Millisecond / 2 << min(f.tries, 9)))
			f.tries++
			d.reports = append(d.reports, f)
		default: // not of this turn
			d.reports = append(d.reports, f)
		}
	}
	clear(all)
	d.spare = all
}

// drop ends an attempt whose claim was lost before its outcome was handed in.
func (d *dispatcher) drop(f finished, why error) {
	d.live.remove(f.claim.Token)
	f.err = why
	d.tell(f, Revoked)
}

// settle ends an attempt for good, once the database has its outcome.
func (d *dispatcher) settle(f finished) {
	d.live.remove(f.claim.Token)
	d.tell(f, f.kind)
	if f.report.RetryIn == 0 {
		return
	}
	if l, at := &d.look[f.claim.Stage], time.Now().Add(f.report.RetryIn); l.nextAt.IsZero() || at.Before(l.nextAt) {
		l.nextAt = at
	}
}

func (d *dispatcher) tell(f finished, kind Kind) {
	d.Observe(Event{
		Kind: kind, Worker: d.workerID(), Task: f.claim.Task, Stage: f.stage.Name, Attempt: f.claim.Attempt,
		Traceparent: f.claim.Traceparent, Duration: f.took, RetryIn: f.report.RetryIn, Err: f.err,
	})
}

// turnTimeout is how long a round trip may take, hastyTimeout how long when the
// process has to end.
const turnTimeout, hastyTimeout = 30 * time.Second, 3 * time.Second

// trip is the context of one round trip.
func (d *dispatcher) trip(life context.Context) (context.Context, context.CancelFunc) {
	if d.haste.Err() != nil {
		return context.WithTimeout(life, hastyTimeout)
	}
	within := turnTimeout
	if d.trouble.locked {
		within = hastyTimeout // to prepare a statement waits for the lock, too, and has no limit
	}
	ctx, cancel := context.WithTimeout(life, within)
	stop := context.AfterFunc(d.haste, cancel)
	return ctx, func() { stop(); cancel() }
}
