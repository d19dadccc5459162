package stages

import (
	"context"
	"sync"
	"time"
)

// herald tells whoever reads the outbox, in any process, that this one has written
// to it. A notification makes a commit wait for all others, so turns send none: one
// is sent beside them, for all that was written in the meantime. What people and
// submitters do is notified of by the triggers.
func (d *dispatcher) notifyEvents(ctx context.Context) {
	const pause = 200 * time.Millisecond
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wrote:
		}
		sending, cancel := context.WithTimeout(ctx, shutdownTimeout)
		// Where it fails the database is away, of which others tell; readers look by
		// themselves now and then.
		_ = d.Backend.NotifyEvents(sending)
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// forgetEvery is the time between two looks for events that are too old.
const forgetEvery = time.Minute

// forget deletes events that are older than they are to be kept.
func (d *dispatcher) pruneEvents(ctx context.Context) {
	if d.KeepEvents < 0 {
		return
	}
	timer := time.NewTimer(jitter(forgetEvery))
	defer timer.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		trying, cancel := context.WithTimeout(ctx, exchangeTimeout)
		more, err := d.Backend.PruneEvents(trying, d.KeepEvents)
		cancel()
		if err != nil && !failed && ctx.Err() == nil {
			d.Observe(Event{Kind: PruneFailed, Worker: d.workerID(), Err: err})
		}
		failed = err != nil
		if more {
			timer.Reset(time.Second)
		} else {
			timer.Reset(jitter(forgetEvery))
		}
	}
}

// beside runs what goes on beside the dispatcher until ctx is done.
func (d *dispatcher) runBackground(ctx context.Context) (wait func()) {
	var all sync.WaitGroup
	for _, run := range []func(context.Context){d.runHeartbeat, d.notifyEvents, d.pruneEvents, d.noteDrain} {
		all.Go(func() { run(ctx) })
	}
	return all.Wait
}
