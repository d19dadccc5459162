package stages

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

// Run works until ctx is done, then drains: it claims nothing more, lets attempts finish
// within the Grace, cancels and releases the others, and deregisters. It returns nil after
// a drain, or [ErrIgnoredCancel] if Work did not return when its context was done; those
// claims are released, too. Run waits for a database that does not answer, however long; it
// returns another error only if it cannot start, or if a Backend's error is [Permanent]: then it
// cancels its attempts, whose outcomes nobody accepts. It drains and returns [store.ErrSchemaNewer] or [store.ErrSchemaShape] where
// the tables are upgraded beyond what this program supports, or get other stages, while it works or is frozen; and the panic of a
// callback, Observe or OnAlive.
func (r Runner) Run(ctx context.Context) error {
	if err := r.prepare(); err != nil {
		return fmt.Errorf("run pipeline: %w", err)
	}
	if l, ok := r.Wakes.(Listener); ok {
		return r.runWith(ctx, l)
	}
	return r.run(ctx)
}

func (r Runner) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	callbacks := &callbackGuard{stop: stop}
	callbacks.wrap(&r)
	p := newProcess(r)
	d := newDispatcher(p)
	if err := d.registerWhenReachable(ctx); err != nil {
		if ctx.Err() != nil {
			err = callbacks.panicked()
		}
		if err == nil {
			return nil
		}
		return fmt.Errorf("run pipeline: %w", err)
	}
	// The heartbeat and the database are needed until the drain has ended.
	base := context.WithoutCancel(ctx)
	background, end := context.WithCancel(base)
	var all sync.WaitGroup
	for _, run := range []func(context.Context){
		p.runHeartbeat, p.notifyEvents, p.pruneEvents, p.pruneRows, p.recordDrain, p.unpublishDeleted, p.purgeDeleted,
	} {
		all.Go(func() { run(background) })
	}
	all.Go(func() { p.watchTables(background, stop) })
	err := d.run(ctx, base)
	end()
	all.Wait()
	p.deregister(base)
	if cause := context.Cause(ctx); isOutdated(cause) {
		err = errors.Join(cause, err)
	}
	if err = errors.Join(callbacks.panicked(), err); err != nil {
		return fmt.Errorf("run pipeline: %w", err)
	}
	return nil
}

// callbackGuard stops a Runner after a panic of a callback: the panic would end the process, and count as an
// attempt of all its tasks.
type callbackGuard struct {
	stop context.CancelCauseFunc
	mu   sync.Mutex
	err  error // the first
}

// wrap makes the callbacks of a Runner recover.
func (g *callbackGuard) wrap(r *Runner) {
	observe, onAlive := r.Observe, r.OnAlive
	r.Observe = func(e Event) { defer g.recover("Observe"); observe(e) }
	r.OnAlive = func(loop string) { defer g.recover("OnAlive"); onAlive(loop) }
}

// recover is deferred.
func (g *callbackGuard) recover(callback string) {
	v := recover()
	if v == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = fmt.Errorf("%s: %w", callback, &panicError{v, debug.Stack()})
		g.stop(g.err)
	}
}

func (g *callbackGuard) panicked() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// watchTables stops this process when it does not support the tables any more, which it asks about every minute by default.
func (p *process) watchTables(ctx context.Context, stop context.CancelCauseFunc) {
	for ctxsleep.For(ctx, jitter(longestSweepInterval*p.SweepInterval)) == nil {
		checking, cancel := context.WithTimeout(ctx, time.Second) // a locked table must not keep a connection from heartbeats
		err := p.Backend.Check(checking)
		cancel()
		if isOutdated(err) {
			stop(err)
			return
		}
	}
}

// isOutdated reports whether an error says that the tables are those of another program by now.
func isOutdated(err error) bool {
	return errors.Is(err, store.ErrSchemaNewer) || errors.Is(err, store.ErrSchemaShape)
}

// runWith runs the listener until the work has drained: notifications tell of claims that
// are cancelled meanwhile, and the listener's session shows other workers that this
// process is alive. A listener that cannot run ends the Runner, after a drain.
func (r Runner) runWith(ctx context.Context, l Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listening, quit := context.WithCancel(context.WithoutCancel(ctx))
	defer quit()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- l.Run(listening)
	}()
	err := r.run(ctx)
	quit()
	return errors.Join(err, <-ended)
}

func (r *Runner) prepare() error {
	switch {
	case r.Pipeline == nil:
		return errors.New("no Pipeline")
	case r.Pool == nil && r.Backend == nil:
		return errors.New("no Pool")
	}
	if r.Name != "" {
		if err := store.CheckWorkerName(r.Name); err != nil {
			return err
		}
	}
	if r.Backend == nil {
		r.Backend = newDatabase(r.Pool, r.Pipeline.graph)
	}
	r.Pipeline = r.Pipeline.doneBy(store.Worker{Capabilities: r.Capabilities})
	if r.Wakes == nil && r.Pool != nil {
		r.Wakes = notify.New(r.Pool, notify.Options{Channels: r.Pipeline.Channels()})
	}
	if r.Grace == 0 {
		r.Grace = 30 * time.Second
	}
	if r.SweepInterval <= 0 {
		r.SweepInterval = 15 * time.Second
	}
	if r.Lease <= 0 {
		r.Lease = store.DefaultLease
	}
	if r.KeepEvents == 0 {
		r.KeepEvents = 7 * 24 * time.Hour
	}
	if err := r.prepareRetention(); err != nil {
		return err
	}
	if r.OnAlive == nil {
		r.OnAlive = func(string) {}
	}
	if r.Observe == nil {
		r.Observe = func(Event) {}
	}
	return nil
}
