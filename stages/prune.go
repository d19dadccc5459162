package stages

import (
	"context"
	"errors"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

const (
	// pruneDelay is the time from the start to the first deletion of old rows, and pruneInterval that between two. It is
	// idlePruneInterval where the last one found nothing, or less where rows are kept for less.
	pruneDelay        = 10 * time.Second
	pruneInterval     = time.Minute
	idlePruneInterval = 10 * time.Minute
	// pruneTimeout limits one deletion, which has many statements, of other rows than events.
	pruneTimeout = 10 * time.Minute
)

// pruneEvents deletes events older than KeepEvents.
func (p *process) pruneEvents(ctx context.Context) {
	if p.KeepEvents < 0 || p.housekeeper == nil {
		return
	}
	p.pruneAtIntervals(ctx, exchangeTimeout, func(ctx context.Context) (time.Duration, error) {
		n, more, err := p.housekeeper.PruneEvents(ctx, p.KeepEvents)
		if n > 0 {
			p.observe(Event{Kind: EventsPruned, Count: n})
		}
		return nextPrune(n > 0, more, p.KeepEvents), err
	})
}

// pruneRows deletes other old rows; see Retention.
func (p *process) pruneRows(ctx context.Context) {
	if p.Retention == nil {
		return
	}
	p.pruneAtIntervals(ctx, pruneTimeout, func(ctx context.Context) (time.Duration, error) {
		pruned, err := p.housekeeper.Prune(ctx, p.Retention.prune)
		others := 0
		if err == nil && p.Retention.PruneOthers != nil {
			others, err = p.Retention.PruneOthers(ctx)
		}
		some := pruned != store.PruneResult{} || others > 0
		if some {
			signal(p.wrote, true)
			p.observe(Event{Kind: RowsPruned, Pruned: pruned, Count: others})
		}
		if some && errors.Is(err, context.DeadlineExceeded) {
			return nextPrune(some, true), nil
		}
		o := p.Retention.prune
		return nextPrune(some, false, o.Finished, o.Dead, o.Workers), err
	})
}

// nextPrune is the time to the next deletion after one that deleted some or none, and left more. After none it is not longer than
// rows are kept.
func nextPrune(some, more bool, keep ...time.Duration) time.Duration {
	switch {
	case more:
		return time.Second
	case some:
		return jitter(pruneInterval)
	}
	next := idlePruneInterval
	for _, k := range keep {
		if k > 0 {
			next = min(next, max(k, pruneInterval))
		}
	}
	return jitter(next)
}

// pruneAtIntervals calls prune, which returns when to call it again; a minute later after an error.
func (p *process) pruneAtIntervals(
	ctx context.Context, timeout time.Duration, prune func(context.Context) (next time.Duration, err error),
) {
	failed := false
	for next := jitter(pruneDelay); ctxsleep.For(ctx, next) == nil; {
		pruning, cancel := context.WithTimeout(ctx, timeout)
		var err error
		next, err = prune(pruning)
		cancel()
		if err != nil && !failed && ctx.Err() == nil {
			p.observe(Event{Kind: PruneFailed, Err: err})
		}
		if failed = err != nil; failed {
			next = jitter(pruneInterval)
		}
	}
}
