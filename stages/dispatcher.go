package stages

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
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

	shutdownContext context.Context // ends when nothing may take long any more

	live         attempts
	work         sync.WaitGroup
	done         chan finished // never blocks: it holds as many as there are slots
	overdue      chan store.ID // tokens of attempts that were told to end and did not; never blocks either
	recall       chan struct{} // for the heartbeat: check the claims now
	workerGone   chan struct{} // from the heartbeat: somebody went away
	notListening chan struct{} // from the heartbeat: no news comes in
	newControls  chan controls // from the heartbeat: the newest
	wrote        chan struct{} // for the herald: there are new events
	drainStarted chan struct{} // a drain has begun with work under way

	querySlots chan struct{} // taken by the queries of work

	paused           []bool        // by stage: nothing is to be claimed
	suspended        []suspension  // by stage
	busy             []int         // by stage: slots in use
	prefetched       []prefetch    // by stage
	exchangeTime     time.Duration // how long a turn takes, on average of late
	queues           []stageQueue
	reports          []finished // ended, not in the database yet
	reportsBuffer    []finished // the room of what was there before: two take turns
	ignoredCancel    []*attempt // given up, but still in their slots
	exchanges        int
	justStarted      int // attempts started by the latest turn that may end at once
	sweepAt          time.Time
	swept            bool // at least once
	draining         bool
	outage           outage
	contact          databaseContact
	openTransactions map[store.ID]bool // workers of which it was told that they left a transaction open
}

func newDispatcher(r *Runner) *dispatcher {
	d := &dispatcher{
		Runner:           r,
		stages:           r.Pipeline.stages,
		byChannel:        make(map[string]int),
		live:             attempts{attempts: make(map[store.ID]*attempt)},
		recall:           make(chan struct{}, 1),
		workerGone:       make(chan struct{}, 1),
		notListening:     make(chan struct{}, 1),
		newControls:      make(chan controls, 1),
		wrote:            make(chan struct{}, 1),
		drainStarted:     make(chan struct{}, 1),
		paused:           make([]bool, len(r.Pipeline.stages)),
		suspended:        make([]suspension, len(r.Pipeline.stages)),
		busy:             make([]int, len(r.Pipeline.stages)),
		prefetched:       make([]prefetch, len(r.Pipeline.stages)),
		queues:           make([]stageQueue, len(r.Pipeline.stages)),
		openTransactions: make(map[store.ID]bool),
	}
	slots := 0
	for i, s := range d.stages {
		slots += s.Workers
		d.byChannel[r.Pipeline.graph.Channel(s.Name)] = i
	}
	d.done, d.overdue = make(chan finished, slots), make(chan store.ID, 2*slots)
	d.querySlots = make(chan struct{}, maxConcurrentQueries(r.Pool))
	return d
}

// register makes this process known, under a name it never had before.
func (d *dispatcher) registerWorker(ctx context.Context) error {
	self := d.self()
	// Once it is registered nothing may go wrong any more, or it would be another
	// that is soon found to have gone away.
	paused, err := d.Backend.PausedStages(ctx, self.Host)
	if err != nil {
		return err
	}
	id, err := d.Backend.RegisterWorker(ctx, self)
	if err != nil {
		return err
	}
	d.setControls(controls{paused: paused})
	d.mu.Lock()
	d.worker = id
	d.mu.Unlock()
	signal(d.wrote, true)
	d.Observe(Event{Kind: WorkerStarted, Worker: id})
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
	defer d.watchShutdown(ctx)()
	for {
		d.Heartbeat("dispatcher")
		d.receive()
		drain.poll()
		if d.draining && len(d.reports) == 0 && d.live.count() == 0 {
			break
		}
		if drain.isOverdue() {
			break // what could not be handed in will lapse
		}
		if !d.outage.isOver() {
			d.wait(drain)
		} else if !d.draining && !time.Now().Before(d.sweepAt) {
			d.sweep(life)
		} else if turn, worth := d.nextExchange(); worth {
			d.exchange(life, turn)
		} else {
			d.wait(drain)
		}
	}
	if len(d.ignoredCancel) > 0 {
		return newIgnoredCancelError(d.ignoredCancel)
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
func (d *dispatcher) receive() {
	runtime.Gosched() // work that ends at the same instant should come in the same turn
	d.receiveFinished()
	began := time.Now()
	for i := 0; d.justStarted > 0 && d.justStarted <= few && i < yields && time.Since(began) < soon; i++ {
		runtime.Gosched()
		d.receiveFinished()
	}
	d.justStarted = 0
	select {
	case o := <-d.newControls:
		d.applyControls(o) // before anything is claimed
	default:
	}
	select {
	case <-d.wakeups():
		d.handleWakeups(d.Wakes.Take())
	case <-d.workerGone:
		d.sweepAt = time.Now()
	case <-d.notListening:
		d.markAllReady()
	default:
	}
	now := time.Now()
	d.releaseOverdue(now)
	for i := range d.queues {
		d.queues[i].come(now)
	}
}

// collect takes in what has ended.
func (d *dispatcher) receiveFinished() {
	for {
		select {
		case f := <-d.done:
			d.finish(f)
		case token := <-d.overdue:
			d.abandon(token)
		default:
			return
		}
	}
}

// news yields a value when there is news; never where there is none.
func (d *dispatcher) wakeups() <-chan struct{} {
	if d.Wakes == nil {
		return nil
	}
	return d.Wakes.C()
}

// hear takes in the news.
func (d *dispatcher) handleWakeups(channels []string) {
	for _, c := range channels {
		if i, ok := d.byChannel[c]; ok {
			d.queues[i].wake(d.free(i) > 0)
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
	if f.kind == StageCompleted {
		d.prefetched[f.claim.Stage].learn(f.took)
	}
	d.updateSuspension(f)
	d.refill(f.claim.Stage)
	if f.turn == d.exchanges && d.justStarted > 0 {
		d.justStarted--
	}
	if i := slices.Index(d.ignoredCancel, f.attempt); i >= 0 {
		d.ignoredCancel = slices.Delete(d.ignoredCancel, i, i+1) // what became of it has been said
		return
	}
	if f.dropped {
		d.live.remove(f.claim.Token)
		d.observe(f, ClaimRevoked)
		return
	}
	d.reports = append(d.reports, f)
}

// turn is what to hand in now, and whether that is worth a round trip.
func (d *dispatcher) nextExchange() (engine.ExchangeRequest, bool) {
	t := engine.ExchangeRequest{
		Worker:     d.workerID(),
		Reports:    d.reportsDue(),
		FreeSlots:  make([]int, len(d.stages)),
		ClaimFrom:  make([]bool, len(d.stages)),
		PromoteDue: make([]bool, len(d.stages)),
		After:      make([]engine.Position, len(d.stages)),
		Aged:       make([][]store.ID, len(d.stages)),
		OnlyTasks:  d.OnlyTasks,
	}
	worth := len(t.Reports) > 0
	if d.draining {
		return t, worth
	}
	now := time.Now()
	for i := range d.stages {
		l := &d.queues[i]
		t.FreeSlots[i] = d.free(i)
		if l.due && t.FreeSlots[i] > 0 && !now.Before(l.notUntil) {
			t.ClaimFrom[i], t.PromoteDue[i] = true, l.mature
			t.Aged[i] = l.aged[:min(len(l.aged), t.FreeSlots[i])]
			if !l.mature && d.isListening() && now.Before(l.backAt) {
				t.After[i] = l.after // news of what comes before it would be heard
			}
			worth = true
		}
	}
	return t, worth
}

// reportsDue are all but those whose rows were locked a moment ago.
func (d *dispatcher) reportsDue() []engine.Report {
	due := make([]engine.Report, 0, len(d.reports))
	now := time.Now()
	for i := range d.reports {
		if !now.Before(d.reports[i].next) {
			due = append(due, d.reports[i].report)
		}
	}
	return due
}

// take makes one turn and takes in what came of it.
func (d *dispatcher) exchange(life context.Context, t engine.ExchangeRequest) {
	if d.outage.uncertain {
		if !d.reconcile(life) {
			return
		}
		t.Reports = d.reportsDue() // some were found in the history
	}
	ctx, cancel := d.exchangeContext(life)
	began := time.Now()
	out, err := d.Backend.Exchange(ctx, t)
	cancel()
	if err != nil {
		d.exchangeFailed(life, err)
		return
	}
	d.databaseAnswered()
	took := time.Since(began)
	d.exchangeTime += (took - d.exchangeTime) / 8
	signal(d.wrote, len(t.Reports)+len(out.Claims) > 0)
	d.applyReports(t, out)
	woken := d.woken(t)
	d.updateQueues(t, out, took)
	d.exchanges++
	for _, c := range out.Claims {
		// What waited for longer than the sweeps are apart was hidden from them: its
		// row was changed by hand, and when is not known.
		d.accept(life, c, woken[c.Stage] && c.Waited > 0 && c.Waited < 2*d.SweepInterval)
	}
}

// handedIn settles the reports of a turn, and keeps those whose rows somebody
// else had locked. They come again after a millisecond or two, for so long
// does another turn take, and then less and less often.
func (d *dispatcher) applyReports(t engine.ExchangeRequest, out engine.ExchangeResult) {
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
	d.reports = d.reportsBuffer[:0]
	for _, f := range all {
		switch fate[f.report.Token] {
		case reported:
			d.confirm(f)
		case stale:
			d.dropReport(f, ErrLeaseLost)
		case cancelled:
			d.dropReport(f, ErrCancelled)
		case locked:
			f.next = time.Now().Add(jitter(3 * time.Millisecond / 2 << min(f.tries, 9)))
			f.tries++
			d.reports = append(d.reports, f)
		default: // not of this turn
			d.reports = append(d.reports, f)
		}
	}
	clear(all)
	d.reportsBuffer = all
}

// drop ends an attempt whose claim was lost before its outcome was handed in.
func (d *dispatcher) dropReport(f finished, why error) {
	d.live.remove(f.claim.Token)
	f.err = why
	d.observe(f, ClaimRevoked)
}

// settle ends an attempt for good, once the database has its outcome.
func (d *dispatcher) confirm(f finished) {
	d.live.remove(f.claim.Token)
	d.observe(f, f.kind)
	if f.report.RetryIn == 0 {
		return
	}
	if l, at := &d.queues[f.claim.Stage], time.Now().Add(f.report.RetryIn); l.nextAt.IsZero() || at.Before(l.nextAt) {
		l.nextAt = at
	}
}

func (d *dispatcher) observe(f finished, kind Kind) {
	d.Observe(Event{
		Kind: kind, Worker: d.workerID(), Task: f.claim.Task, Stage: f.stage.Name, Attempt: f.claim.Attempt,
		Traceparent: f.claim.Traceparent, Duration: f.took, RetryIn: f.report.RetryIn, Err: f.err,
	})
}

// turnTimeout is how long a round trip may take, hastyTimeout how long when the
// process has to end.
const exchangeTimeout, shutdownTimeout = 30 * time.Second, 3 * time.Second

// trip is the context of one round trip.
func (d *dispatcher) exchangeContext(life context.Context) (context.Context, context.CancelFunc) {
	if d.shutdownContext.Err() != nil {
		return context.WithTimeout(life, shutdownTimeout)
	}
	within := exchangeTimeout
	if d.outage.locked {
		within = shutdownTimeout // to prepare a statement waits for the lock, too, and has no limit
	}
	ctx, cancel := context.WithTimeout(life, within)
	stop := context.AfterFunc(d.shutdownContext, cancel)
	return ctx, func() { stop(); cancel() }
}
