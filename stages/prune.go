package stages

import (
	"context"
	"errors"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

const (
	// pruneDelay is the time from the start to the first deletion of old rows, and pruneInterval that between two.
	pruneDelay    = 10 * time.Second
	pruneInterval = time.Minute
	// pruneTimeout limits one deletion, which has many statements, of other rows than events.
	pruneTimeout = 10 * time.Minute
)

// pruneEvents deletes events older than KeepEvents.
func (p *process) pruneEvents(ctx context.Context) {
	if p.KeepEvents < 0 {
		return
	}
	p.pruneAtIntervals(ctx, exchangeTimeout, func(ctx context.Context) (more bool, err error) {
		n, more, err := p.Backend.PruneEvents(ctx, p.KeepEvents)
		if n > 0 {
			p.observe(Event{Kind: EventsPruned, Count: n})
		}
		return more, err
	})
}

// pruneRows deletes other old rows; see Retention.
func (p *process) pruneRows(ctx context.Context) {
	if p.Retention == nil {
		return
	}
	p.pruneAtIntervals(ctx, pruneTimeout, func(ctx context.Context) (more bool, err error) {
		pruned, err := p.Backend.(remover).Prune(ctx, p.Retention.prune)
		some := pruned != store.PruneResult{}
		if some {
			signal(p.wrote, true)
			p.observe(Event{Kind: RowsPruned, Pruned: pruned})
		}
		if some && errors.Is(err, context.DeadlineExceeded) {
			return true, nil
		}
		return false, err
	})
}

// pruneAtIntervals calls prune about every minute; a second later if there is more to delete.
func (p *process) pruneAtIntervals(
	ctx context.Context, timeout time.Duration, prune func(context.Context) (more bool, err error),
) {
	failed := false
	for next := jitter(pruneDelay); ctxsleep.For(ctx, next) == nil; {
		pruning, cancel := context.WithTimeout(ctx, timeout)
		more, err := prune(pruning)
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
