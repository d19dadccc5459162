package stages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// process is what the goroutines of a running [Runner] share: the dispatcher, the
// heartbeat, the event notifier, the shutdown and the attempts. The settings never
// change; every other field has a lock of its own or is a channel.
type process struct {
	Runner
	housekeeper housekeeper // the Backend, if it is one; nil without the database
	listener    Listener    // Wakes, if it is one

	worker   workerID
	attempts attempts
	contact  databaseContact
	// queueFull says that triggers do not notify, because the server's notification queue is nearly full. The heartbeat sets it.
	queueFull atomic.Bool
	queries   chan struct{} // one value per query of Work in progress
	signals
}

// signals are the channels between these goroutines. Sending on them never blocks.
type signals struct {
	ended         chan finished // attempts → dispatcher; has room for all slots
	overdue       chan store.ID // attempts → dispatcher: tokens of attempts that ignored their cancel
	workerExpired chan struct{} // heartbeat → dispatcher: sweep now
	notListening  chan struct{} // heartbeat → dispatcher: no notifications arrive
	controls      chan controls // heartbeat → dispatcher: the newest
	checkClaims   chan struct{} // dispatcher → heartbeat: check the claims now
	refused       chan error    // heartbeat → dispatcher: the Backend refuses this worker for good
	swept         chan swept    // sweep → dispatcher: what it found
	drainStarted  chan struct{} // dispatcher → drain recorder: a drain started while attempts were running
	wrote         chan struct{} // all → event notifier: there are new events
	deleted       chan struct{} // dispatcher → retention: tasks may have been deleted
	toPurge       chan struct{} // retention: tasks may have to be purged
}

// controls are what operators want of this process: read when it registers, and with
// every heartbeat.
type controls struct {
	paused []bool // by stage: claim nothing; nil: as before
	drain  bool   // finish the work and stop
}

// setControls leaves the controls for the dispatcher, in place of older ones.
func (s signals) setControls(c controls) {
	for {
		select {
		case s.controls <- c:
			return
		case older := <-s.controls:
			if c.paused == nil {
				c.paused = older.paused
			}
		}
	}
}

const (
	exchangeTimeout   = 30 * time.Second       // of a request
	shutdownTimeout   = 3 * time.Second        // of a request when the process must end
	deregisterTimeout = 10 * time.Second       // to record, after the work has ended, that it has
	queryTimeout      = 10 * time.Second       // of a query of Work
	lockRetryDelay    = 500 * time.Millisecond // between two waits for a lock
)

// newRetryBackoff returns the pauses between tries while the database does not answer. They are
// random, so that processes do not return all at once.
func newRetryBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

func newProcess(r Runner) *process {
	slots := 0
	for _, s := range r.Pipeline.stages {
		slots += s.Slots + s.joinSlots()
	}
	p := &process{
		Runner:   r,
		attempts: attempts{byToken: make(map[store.ID]*attempt)},
		queries:  make(chan struct{}, maxConcurrentQueries(r.Pool)),
		signals: signals{
			ended: make(chan finished, slots), overdue: make(chan store.ID, 2*slots),
			workerExpired: make(chan struct{}, 1), notListening: make(chan struct{}, 1), controls: make(chan controls, 1),
			refused: make(chan error, 1), checkClaims: make(chan struct{}, 1), drainStarted: make(chan struct{}, 1),
			swept: make(chan swept, 1), wrote: make(chan struct{}, 1),
			deleted: make(chan struct{}, 1), toPurge: make(chan struct{}, 1),
		},
	}
	p.housekeeper, _ = r.Backend.(housekeeper)
	p.listener, _ = r.Wakes.(Listener)
	return p
}

// refuse makes the dispatcher end, because this worker is refused for good.
func (p *process) refuse(err error) {
	select {
	case p.refused <- err:
	default: // the dispatcher is ending
	}
}

// signal sends if when is true, unless a value is waiting already.
func signal(c chan<- struct{}, when bool) {
	if !when {
		return
	}
	select {
	case c <- struct{}{}:
	default:
	}
}

// workerID is the id under which this process is registered.
type workerID struct {
	mu sync.Mutex
	id store.ID
}

func (w *workerID) get() store.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.id
}

func (w *workerID) set(id store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id = id
}

// observe reports an event of this worker.
func (p *process) observe(e Event) {
	e.Worker = p.worker.get()
	p.Observe(e)
}

// observeEnd reports how an attempt ended.
func (p *process) observeEnd(f finished, kind Kind) {
	reporting := time.Duration(0)
	if kind == StageCompleted || kind == PartCompleted {
		reporting = time.Since(f.started) - f.took
	}
	p.observe(Event{
		Kind: kind, Task: f.claim.Task, Stage: f.stage.Name, Part: f.claim.Part, Parts: f.claim.Parts, Attempt: f.claim.Attempt,
		Count: len(f.report.Parts), Kept: len(f.report.Kept), Traceparent: f.claim.Traceparent,
		Duration: f.took, Reporting: reporting, RetryIn: f.report.RetryIn, Err: f.err,
	})
}

// register registers this process as a new worker.
func (p *process) register(ctx context.Context) error {
	self := p.self()
	id, paused, err := p.Backend.RegisterWorker(ctx, self)
	if err != nil {
		return err
	}
	if paused != nil {
		p.setControls(controls{paused: paused})
	}
	p.worker.set(id)
	signal(p.wrote, true)
	p.observe(Event{Kind: WorkerStarted})
	return nil
}

// deregister records that the worker stopped. The event notifier has ended by now, so
// readers of events are notified here.
func (p *process) deregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, deregisterTimeout)
	defer cancel()
	err := p.Backend.DeregisterWorker(ctx, p.worker.get())
	if err == nil && p.housekeeper != nil {
		notifying, cancel := context.WithTimeout(ctx, shutdownTimeout)
		_ = p.housekeeper.NotifyEvents(notifying) // readers also poll
		cancel()
	}
	p.observe(Event{Kind: WorkerStopped, Err: err})
}

// job describes an attempt to its Work.
func (p *process) job(a *attempt) *Job {
	c := a.claim
	return &Job{
		Task: c.Task, Source: c.Source, Params: c.Params, UserID: c.UserID, Traceparent: c.Traceparent,
		Stage: a.stage.Name, Attempt: c.Attempt, MaxAttempts: a.stage.MaxAttempts, Token: c.Token, Parts: c.Parts, Part: c.Part, Spec: c.Spec,
		Results: func(ctx context.Context, stage string) (json.RawMessage, error) {
			return p.result(ctx, c.Task, stage)
		},
		OnPartResults: func(ctx context.Context) ([]json.RawMessage, error) { return p.partResults(ctx, c.Task, a.stage.Name) },
		OnConfirm:     func(ctx context.Context) error { return p.confirm(ctx, a) },
		OnProgress: func(progress Progress) {
			progress.Note = redact.Text(progress.Note, c.Source)
			progress = progress.clean()
			a.setProgress(progress)
			p.observe(Event{Kind: StageProgress, Task: c.Task, Stage: a.stage.Name, Part: c.Part, Parts: c.Parts,
				Attempt: c.Attempt, Progress: progress})
		},
	}
}

// confirm checks in the database that the claim of an attempt is still valid.
func (p *process) confirm(ctx context.Context, a *attempt) error {
	lost, err := p.lostClaims(ctx, a.claim)
	if err != nil || len(lost) == 0 {
		return err
	}
	why := claimLostError(lost[0].Cancelled)
	a.cancel(fmt.Errorf("%w: %w", why, errRevoked))
	return why
}

// maxConcurrentQueries is half of the pool's connections. Queries of Work wait while a
// table is locked, and must leave connections for heartbeats and exchanges.
func maxConcurrentQueries(pool *pgxpool.Pool) int {
	if pool == nil {
		return 2
	}
	return max(int(pool.Config().MaxConns)/2, 1)
}

// query runs a query of Work, for up to 10 s, when one of the connections for them is free.
func (p *process) query(ctx context.Context, query func(ctx context.Context) error) error {
	select {
	case p.queries <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.queries }()
	within, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return query(within)
}

// result reads a stage's result.
func (p *process) result(ctx context.Context, task store.ID, stage string) (raw json.RawMessage, err error) {
	err = p.read(ctx, func(ctx context.Context) (err error) {
		raw, err = p.Backend.Result(ctx, task, stage)
		return err
	})
	return raw, err
}

// partResults reads the results of a stage's parts.
func (p *process) partResults(ctx context.Context, task store.ID, stage string) (all []json.RawMessage, err error) {
	if p.housekeeper == nil {
		return nil, fmt.Errorf("%w: only workers with the database join parts", store.ErrNotFound)
	}
	err = p.read(ctx, func(ctx context.Context) (err error) {
		all, err = p.housekeeper.PartResults(ctx, task, stage)
		return err
	})
	return all, err
}

// read reads what Work asks for. It waits for a database that does not answer, because that is not
// the attempt's failure.
func (p *process) read(ctx context.Context, query func(ctx context.Context) error) error {
	for delay := newRetryBackoff(); ; {
		err := p.query(ctx, query)
		if err == nil || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrNoStage) ||
			ctxsleep.For(ctx, delay.NextBackOff()) != nil {
			return err
		}
	}
}

// lostClaims returns the claim if it is lost. It waits while the table is locked.
func (p *process) lostClaims(ctx context.Context, c engine.Claim) (lost []engine.LostClaim, err error) {
	for {
		err = p.query(ctx, func(ctx context.Context) (err error) {
			lost, err = p.Backend.FindLostClaims(ctx, []engine.Claim{c})
			return err
		})
		if !errors.Is(err, store.ErrLocked) && !errors.Is(err, context.DeadlineExceeded) ||
			ctxsleep.For(ctx, jitter(lockRetryDelay)) != nil {
			return lost, err
		}
	}
}
