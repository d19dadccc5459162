package stages

import (
	"context"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// notifyEvents notifies readers of events, in any process, that this one has written
// some. Commits with a notification wait for each other, so exchanges send none; one is
// sent for all that were written in 200 ms. The triggers notify of what others write.
func (p *process) notifyEvents(ctx context.Context) {
	const interval = 200 * time.Millisecond
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wrote:
		}
		sending, cancel := context.WithTimeout(ctx, shutdownTimeout)
		_ = p.Backend.NotifyEvents(sending) // the dispatcher reports an outage; readers also poll
		cancel()
		if ctxsleep.For(ctx, interval) != nil {
			return
		}
	}
}

// pruneInterval is the time between two runs of pruneEvents.
const pruneInterval = time.Minute

// pruneEvents deletes events older than KeepEvents.
func (p *process) pruneEvents(ctx context.Context) {
	if p.KeepEvents < 0 {
		return
	}
	failed := false
	for next := jitter(pruneInterval); ctxsleep.For(ctx, next) == nil; {
		pruning, cancel := context.WithTimeout(ctx, exchangeTimeout)
		more, err := p.Backend.PruneEvents(pruning, p.KeepEvents)
		cancel()
		if err != nil && !failed && ctx.Err() == nil {
			p.observe(Event{Kind: PruneFailed, Err: err})
		}
		failed = err != nil
		next = jitter(pruneInterval)
		if more {
			next = time.Second
		}
	}
}
