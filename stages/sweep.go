package stages

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// sweeps is the dispatcher's memory of its sweeps.
type sweeps struct {
	next             time.Time
	running          bool              // one is under way
	done             bool              // at least one
	quietSince       time.Time         // since when sweeps found nothing that a notification should have announced
	missed           bool              // they have, once
	openTransactions map[store.ID]bool // workers whose open transactions were reported
	thoroughAt       time.Time         // when the next one may be thorough
	reportedFailure  bool              // of the last one
}

// thoroughShare is how much of its time a process spends with thorough sweeps at most: a twentieth. They take longer and longer
// while a transaction elsewhere holds a snapshot.
const thoroughShare = 20

// sweepRetry is the time to the next sweep when this one failed or met locked rows.
const sweepRetry = 250 * time.Millisecond

// wakeDelay is how much later than the sweep a notification may arrive.
const wakeDelay = time.Second

func (s *sweeps) due() bool { return !s.running && !time.Now().Before(s.next) }

// Bounds of the time between two sweeps, as multiples of Runner.SweepInterval.
const (
	shortestSweepInterval = 0.25
	longestSweepInterval  = 4
	// quietSweeps is for how many intervals nothing must have been missed before sweeps become rarer.
	quietSweeps = 20
)

// interval is the time to the next sweep. Sweeps become rarer where none found anything for long, by a twentieth
// of that time, and more frequent for a few intervals after one did.
func (s *sweeps) interval(base time.Duration, mayBeRare bool) time.Duration {
	quiet := time.Since(s.quietSince)
	switch {
	case s.missed && quiet < longestSweepInterval*base:
		return time.Duration(shortestSweepInterval * float64(base))
	case !mayBeRare:
		return base
	}
	return min(max(base, quiet/quietSweeps), longestSweepInterval*base)
}

// recordMiss records that a sweep found what no notification had announced.
func (s *sweeps) recordMiss(base time.Duration) {
	s.quietSince, s.missed = time.Now(), true
	if next := time.Now().Add(s.interval(base, false)); next.Before(s.next) {
		s.next = next
	}
}

// sweepInterval is the time to the next sweep. Without notifications, only sweeps find lost workers and due times in time;
// and only they find aged tasks.
func (d *dispatcher) sweepInterval() time.Duration {
	return d.sweeps.interval(d.p.SweepInterval, d.p.isListening() && d.p.AgeAfter <= 0)
}

// reconcileTime is for how long a sweep makes the steps of tasks agree with their statuses, because triggers may have been disabled.
// The next one goes on where it ended.
const reconcileTime = 250 * time.Millisecond

// swept is what a sweep found.
type swept struct {
	result   engine.SweepResult
	held     []engine.HeldClaim
	interval time.Duration
	err      error
	thorough bool
	took     time.Duration
}

// startSweep sweeps, parallel to the exchanges, which it must not delay: it expires lost workers, finds ready steps, and checks that the
// database and this process agree on which claims it holds.
func (d *dispatcher) startSweep(ctx context.Context) {
	interval := d.sweepInterval()
	d.sweeps.next, d.sweeps.running = time.Now().Add(jitter(interval)), true
	in := engine.SweepRequest{
		Worker: d.p.worker.get(), Credit: d.p.contact.credit(d.p.Lease), ExpectedClock: d.p.contact.expectedClock(),
		OnlyTasks: d.p.OnlyTasks, IsQuick: time.Now().Before(d.sweeps.thoroughAt),
	}
	for i := range d.queues {
		in.After = append(in.After, d.queues[i].Position)
	}
	if d.p.OnlyTasks == nil {
		in.AgeAfter = d.p.AgeAfter
	}
	for _, s := range d.p.Pipeline.stages {
		in.MaxAttempts = append(in.MaxAttempts, s.MaxAttempts)
	}
	first, known := !d.sweeps.done, d.knownClaims()
	d.background.Go(func() {
		timeout := exchangeTimeout
		if !in.IsQuick {
			timeout *= 4
		}
		within, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		began := time.Now()
		s := swept{interval: interval, thorough: !in.IsQuick}
		if first {
			s.err = d.p.expirePredecessors(within)
		}
		if s.err == nil && d.p.housekeeper != nil {
			s.err = d.p.sweepDatabase(within, in, &s)
		}
		// An attempt that was known before the sweep asked may have ended meanwhile.
		s.held = slices.DeleteFunc(s.held, func(c engine.HeldClaim) bool { return known[c.Token] })
		s.took = time.Since(began)
		d.p.swept <- s // has room
	})
}

// knownClaims are the claims of which this process knows.
func (d *dispatcher) knownClaims() map[store.ID]bool {
	known := make(map[store.ID]bool)
	for _, a := range d.p.attempts.all() {
		known[a.claim.Token] = true
	}
	for _, f := range d.reports.pending {
		known[f.report.Token] = true
	}
	return known
}

// sweepDatabase is the part of a sweep for which a process needs the database.
func (p *process) sweepDatabase(ctx context.Context, in engine.SweepRequest, s *swept) (err error) {
	if !in.IsQuick {
		if s.held, err = p.housekeeper.FindHeldClaims(ctx, in.Worker); err != nil {
			return err
		}
		if p.OnlyTasks == nil {
			if err := p.housekeeper.Reconcile(ctx, in.Worker, reconcileTime); err != nil {
				return err
			}
		}
	}
	s.result, err = p.housekeeper.Sweep(ctx, in)
	return err
}

// endSweep handles what a sweep found.
func (d *dispatcher) endSweep(base context.Context, s swept) {
	d.sweeps.running = false
	out := s.result
	d.p.observeLost(out.ExpiredWorkers, out.Names, false)
	d.observeOpenTransactions(out.OpenTransactions)
	if s.thorough {
		d.sweeps.thoroughAt = time.Now().Add(thoroughShare * s.took)
	}
	if s.err != nil || out.RowsLocked {
		d.sweeps.next = time.Now().Add(jitter(min(s.interval, sweepRetry)))
	}
	if out.RowsLocked || s.err != nil && !s.isLate() {
		d.sweeps.thoroughAt = time.Time{} // a quick one does not end the claims of workers that this one has expired
	}
	if s.err != nil {
		d.sweepFailed(base, s)
		return
	}
	d.sweeps.reportedFailure = false
	if d.p.housekeeper == nil {
		d.sweeps.done = true
		d.exchangeAll()
		return
	}
	d.databaseAnswered()
	signal(d.p.wrote, out.ExpiredClaims > 0)
	if out.ExpiredClaims > 0 {
		d.p.observe(Event{Kind: AttemptsExpired, Count: out.ExpiredClaims})
	}
	d.releaseUnknown(s.held, maxExchangeAge)
	d.waiting.Due = false // the sweep has promoted
	d.waiting.Update(true, true, out.NextDue)
	for i := range d.queues {
		q := &d.queues[i]
		q.RestartIn(out.Wait[i])
		d.expectWake(q, out.First[i])
	}
	d.sweeps.done = true
	d.p.observe(Event{Kind: SweepEnded, RetryIn: time.Until(d.sweeps.next)})
}

// exchangeAll makes an exchange due, in case the coordinator has other free slots in mind than this worker has.
func (d *dispatcher) exchangeAll() {
	for i := range d.queues {
		d.queues[i].wake(d.freeSlots(i) > 0, []string{""})
	}
}

// queryCanceled is the code of PostgreSQL for a statement that its statement_timeout has ended.
const queryCanceled = "57014"

// sweepFailed makes exchanges wait as after a failure of their own, unless the database has answered them while the sweep waited:
// then only the sweep has a problem, and is tried again after as long as it took.
func (d *dispatcher) sweepFailed(base context.Context, s swept) {
	if IsPermanent(s.err) || !d.p.contact.hasAnsweredWithin(s.took) {
		d.exchangeFailed(base, s.err)
		return
	}
	d.sweeps.next = time.Now().Add(jitter(min(s.interval, max(s.took, sweepRetry))))
	if s.isLate() && !d.sweeps.reportedFailure {
		d.sweeps.reportedFailure = true
		d.p.observe(Event{Kind: SweepFailed, Err: s.err})
	}
}

// isLate reports whether the sweep did not end in time.
func (s swept) isLate() bool {
	var pg *pgconn.PgError
	return errors.Is(s.err, context.DeadlineExceeded) || errors.As(s.err, &pg) && pg.Code == queryCanceled
}

// expectWake handles the first ready step of a queue, which the sweep found. The first sweep finds what was ready
// before this process started. Later a notification should have announced it; it may
// still be on its way.
func (d *dispatcher) expectWake(q *stageQueue, first *engine.Position) {
	switch {
	case first == nil || q.Due && first.Compare(q.Position) > 0:
	case !d.sweeps.done:
		q.Open(*first)
	default:
		if q.wakeExpectedAt.IsZero() { // else sweeps that follow each other faster would put it off for ever
			q.wakeExpectedAt = time.Now().Add(wakeDelay)
		}
		q.found = first
	}
}

// expirePredecessors expires, before the first sweep, workers of earlier processes on this
// machine that have certainly ended, so that their tasks go on at once.
func (p *process) expirePredecessors(ctx context.Context) error {
	me, self := currentProcess(), p.self()
	all, err := p.Backend.Workers(ctx, false)
	if err != nil {
		return err
	}
	var dead []store.ID
	names := make(map[store.ID]string)
	for _, w := range all {
		if w.ID != p.worker.get() && me.hasWorkerEnded(self.Host, w) {
			dead, names[w.ID] = append(dead, w.ID), w.Name
		}
	}
	if len(dead) == 0 {
		return nil
	}
	lost, err := p.Backend.ExpireWorkers(ctx, dead)
	p.observeLost(lost, names, true)
	return err
}

func (p *process) observeLost(workers []store.ID, names map[store.ID]string, predecessors bool) {
	signal(p.wrote, len(workers) > 0)
	for _, id := range workers {
		p.observe(Event{Kind: WorkerLost, LostWorker: id, LostName: names[id], Predecessor: predecessors})
	}
}

// observeOpenTransactions reports, once for each, workers whose open transactions this
// process may not end.
func (d *dispatcher) observeOpenTransactions(workers []store.ID) {
	for _, id := range workers {
		if d.sweeps.openTransactions == nil {
			d.sweeps.openTransactions = make(map[store.ID]bool)
		}
		if !d.sweeps.openTransactions[id] {
			d.sweeps.openTransactions[id] = true
			d.p.observe(Event{Kind: TransactionLeftOpen, LostWorker: id})
		}
	}
}
