package stages

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store/engine"
)

// dispatcher is the only part of a process that changes tasks. Its goroutine goes round:
// it receives what happened since the last exchange (attempts that ended, notifications,
// controls), sends the reports and the free slots to the database in one round trip, and
// starts attempts on the claims it gets. It does not wait to collect more: a batch is
// what arrives during the exchange before.
//
// A claim goes through the files queue.go → dispatcher.go → slots.go → attempt.go →
// reports.go and back. The goroutine of run owns all fields.
type dispatcher struct {
	p          *process
	queues     []stageQueue     // of the stages, then of the parts of those that divide: see store.Graph.Queues
	byChannel  map[string][]int // NOTIFY channel → queues
	reports    reports
	outage     outage
	sweeps     sweeps
	waiting    engine.WaitingSteps
	background sync.WaitGroup // the sweep
	draining   bool           // claims nothing more
	collecting bool           // a coordinator may have granted claims that cannot start: the next exchange returns them
	refused    error          // the Backend refuses this worker for good, so nothing can be reported

	exchanges     int
	exchangeTime  time.Duration // moving average
	justStarted   int           // attempts of the latest exchange that may end within microseconds
	ignoredCancel []*attempt    // reported as failed, but their Work still runs

	// shutdownContext is done when no request may take long: see [shutdown]. Set before run.
	shutdownContext context.Context
}

func newDispatcher(p *process) *dispatcher {
	graph := p.Pipeline.graph
	d := &dispatcher{
		p: p, queues: make([]stageQueue, graph.Queues()), byChannel: make(map[string][]int),
		shutdownContext: context.Background(), sweeps: sweeps{quietSince: time.Now()},
	}
	for i := range d.queues {
		stage, parts := graph.QueueStage(i)
		s := &p.Pipeline.stages[stage]
		d.queues[i].number, d.queues[i].parts, d.queues[i].stage, d.queues[i].slots = stage, parts, s, s.Slots
		if !parts && s.Part != nil {
			d.queues[i].slots = s.joinSlots()
		}
		channel := graph.Channel(s.Name)
		d.byChannel[channel] = append(d.byChannel[channel], i)
	}
	return d
}

// run dispatches until ctx is done and no attempt is left. base outlives ctx.
func (d *dispatcher) run(ctx, base context.Context) error {
	s := newShutdown(ctx, d)
	defer s.stop()
	defer d.watchShutdown(ctx)()
	sweeping, cancel := context.WithCancel(base)
	defer d.background.Wait()
	defer cancel()
	for {
		d.p.OnAlive("dispatcher")
		d.receive(base)
		s.poll()
		if d.draining && d.reports.empty() && d.p.attempts.count() == 0 {
			break
		}
		if s.isOverdue() {
			break // claims whose outcome could not be reported will expire
		}
		if d.refused != nil && d.busySlots() <= len(d.ignoredCancel) {
			d.reports.takeEach(func(f finished) { d.dropReport(f, d.refused) })
			break
		}
		if d.refused != nil || !d.outage.canRetry() {
			d.wait(base, s)
		} else if !d.draining && d.sweeps.due() {
			d.startSweep(sweeping)
		} else if request, needed := d.nextExchange(); needed {
			d.exchange(base, request)
		} else {
			d.wait(base, s)
		}
	}
	if len(d.ignoredCancel) > 0 {
		return errors.Join(d.refused, newIgnoredCancelError(d.ignoredCancel))
	}
	d.p.attempts.work.Wait()
	return d.refused
}

func newIgnoredCancelError(all []*attempt) error {
	var names []string
	for _, a := range all {
		names = append(names, fmt.Sprintf("%s of task %s", a.stage.Name, a.claim.Task))
	}
	return fmt.Errorf("%w: %s", ErrIgnoredCancel, strings.Join(names, ", "))
}

// Work that does almost nothing ends microseconds after it started, siblings at almost the
// same instant. An exchange for the first one alone would delay the second by a whole
// exchange, so after starting a few attempts the dispatcher yields for a moment. Among many
// attempts it does not matter; work that computes may take the processor at the first yield.
const yieldTime, maxYields, maxYieldAttempts = 50 * time.Microsecond, 250, 8

// receive handles everything that has happened, without waiting.
func (d *dispatcher) receive(base context.Context) {
	runtime.Gosched() // attempts that end at this instant should be in the same exchange
	d.receiveEnded()
	started := time.Now()
	for i := 0; d.justStarted > 0 && d.justStarted <= maxYieldAttempts && i < maxYields &&
		time.Since(started) < yieldTime; i++ {
		runtime.Gosched()
		d.receiveEnded()
	}
	d.justStarted = 0
	select {
	case c := <-d.p.controls:
		d.applyControls(c) // before anything is claimed
	default:
	}
	select {
	case <-d.wakes():
		d.handleWakes(d.p.Wakes.Take())
	case <-d.p.workerExpired:
		d.sweeps.next = time.Now()
	case <-d.p.notListening:
		d.markAllReady()
	case s := <-d.p.swept:
		d.endSweep(base, s)
	case err := <-d.p.refused:
		d.stopRefused(err)
	default:
	}
	now := time.Now()
	d.waiting.Check(now)
	for i := range d.queues {
		d.releaseOverdue(&d.queues[i], now)
		d.queues[i].Check(now)
		d.queues[i].checkWake(now)
	}
}

func (d *dispatcher) receiveEnded() {
	for {
		select {
		case f := <-d.p.ended:
			d.finish(f)
		case token := <-d.p.overdue:
			d.abandon(token)
		default:
			return
		}
	}
}

// wakes yields a value when there are notifications.
func (d *dispatcher) wakes() <-chan struct{} {
	if d.p.Wakes == nil {
		return nil
	}
	return d.p.Wakes.C()
}

func (d *dispatcher) handleWakes(wakes []notify.Wake) {
	for _, w := range wakes {
		for _, i := range d.byChannel[w.Channel] {
			d.queues[i].wake(d.freeSlots(i) > 0, w.Payloads)
		}
		isControl := w.Channel == d.p.Pipeline.graph.ControlChannel()
		signal(d.p.checkClaims, isControl)
		signal(d.p.deleted, isControl)
	}
}

// markAllReady makes every stage due, because no notifications arrive.
func (d *dispatcher) markAllReady() {
	for i := range d.queues {
		if q := &d.queues[i]; !q.Due {
			q.Restart()
			q.missed, q.missedStep = true, nil
		}
	}
}

// nextExchange returns the next request, and whether it is needed.
func (d *dispatcher) nextExchange() (request engine.ExchangeRequest, needed bool) {
	n := len(d.queues)
	r := engine.ExchangeRequest{
		Worker:     d.p.worker.get(),
		Reports:    d.reports.due(),
		FreeSlots:  make([]int, n),
		ClaimFrom:  make([]bool, n),
		After:      make([]engine.Position, n),
		PromoteDue: d.waiting.Due && !d.draining,
		OnlyTasks:  d.p.OnlyTasks,

		MaxRunningPerUser: d.p.MaxRunningPerUser,
	}
	needed = len(r.Reports) > 0 || d.collecting || r.PromoteDue
	if d.draining {
		return r, needed
	}
	now := time.Now()
	d.openReported(r.Reports)
	for i := range d.queues {
		q := &d.queues[i]
		if r.PromoteDue && !d.p.isListening() {
			q.Restart() // otherwise promoted steps are announced
		}
		r.FreeSlots[i] = d.freeSlots(i)
		if r.FreeSlots[i] > 0 && q.Check(now) {
			r.ClaimFrom[i], r.After[i], needed = true, q.Position, true
		}
	}
	return r, needed
}

// openReported makes the next claims begin before the steps that reports open: what follows a completed stage, the parts of one, and
// what is ready again.
func (d *dispatcher) openReported(reports []engine.Report) {
	graph := d.p.Pipeline.graph
	for _, r := range reports {
		a := d.p.attempts.get(r.Token)
		if a == nil {
			continue
		}
		step := a.claim.Position
		switch {
		case r.Outcome == engine.Divided:
			d.queues[graph.Queue(r.Stage, true)].Restart()
		case r.Outcome != engine.Completed:
			if !r.Dead && r.RetryIn <= 0 {
				d.queues[d.queueOf(a.claim)].Open(step)
			}
		case r.Part > 0: // a join is announced: it has a turn of stages
		default:
			for _, next := range graph.Feeds(r.Stage) {
				d.queues[next].Open(step)
			}
		}
	}
}

// exchange makes one round trip and starts attempts on the claims it returns.
func (d *dispatcher) exchange(base context.Context, r engine.ExchangeRequest) {
	if d.outage.uncertain {
		if !d.reconcile(base) {
			return
		}
		r.Reports = d.reports.due() // the history contained some
	}
	ctx, cancel := d.exchangeContext(base)
	started := time.Now()
	out, err := d.p.Backend.Exchange(ctx, r)
	cancel()
	if err != nil {
		d.exchangeFailed(base, err)
		return
	}
	d.databaseAnswered()
	d.collecting = false
	took := time.Since(started)
	d.exchangeTime += (took - d.exchangeTime) / 8
	signal(d.p.wrote, len(r.Reports)+len(out.Claims) > 0)
	d.applyReports(r, out)
	woken := make([]bool, len(d.queues))
	for i := range d.queues {
		woken[i] = r.ClaimFrom[i] && d.queues[i].woken
		d.updateQueue(i, r, out)
	}
	d.waiting.Due = d.waiting.Due && !r.PromoteDue
	d.waiting.Update(r.PromoteDue, slices.Contains(r.ClaimFrom, true), out.NextDue)
	d.exchanges++
	for _, c := range out.Claims {
		// A task that waited for several sweeps was changed by hand: it is not known since
		// when it was ready.
		d.accept(base, c, woken[d.queueOf(c)] && c.Waited > 0 && c.Waited < 2*longestSweepInterval*d.p.SweepInterval)
	}
}

// wait sleeps until there is something to do.
func (d *dispatcher) wait(base context.Context, s *shutdown) {
	timer := time.NewTimer(d.nextTime())
	defer timer.Stop()
	select {
	case f := <-d.p.ended:
		d.finish(f)
	case token := <-d.p.overdue:
		d.abandon(token)
	case <-d.wakes():
		d.handleWakes(d.p.Wakes.Take())
	case <-d.p.workerExpired:
		d.sweeps.next = time.Now()
	case <-d.p.notListening:
		d.markAllReady()
	case s := <-d.p.swept:
		d.endSweep(base, s)
	case c := <-d.p.controls:
		d.applyControls(c)
	case err := <-d.p.refused:
		d.stopRefused(err)
	case <-timer.C:
	case <-s.stopped:
		s.begin()
	case <-s.grace.C:
		s.cancel()
	case <-s.abort:
		s.cancel()
	}
}

// nextTime is the time until something is due.
func (d *dispatcher) nextTime() time.Duration {
	if d.refused != nil {
		return cancelGrace // nothing is due but the ends of the attempts
	}
	if !d.outage.canRetry() {
		return time.Until(d.outage.until)
	}
	next := d.sweeps.next
	switch {
	case d.draining:
		next = time.Now().Add(time.Second) // to check whether the shutdown is overdue
	case d.sweeps.running:
		next = time.Now().Add(d.p.SweepInterval) // its end wakes the dispatcher
	}
	next = d.reports.earliest(next)
	if !d.draining {
		if at := d.waiting.Next; !at.IsZero() && at.Before(next) {
			next = at
		}
		for i := range d.queues {
			next = d.queues[i].earliest(next, d.freeSlots(i) > 0)
		}
	}
	return time.Until(next)
}
