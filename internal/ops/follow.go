package ops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

// EventChannels returns the channels on which a pipeline notifies of everything that
// records an event. The listener behind an event feed listens on them.
func EventChannels(g store.Graph) []string {
	channels := []string{g.ControlChannel(), g.EventsChannel()}
	for _, stage := range g.Stages() {
		channels = append(channels, g.Channel(stage))
	}
	return channels
}

// WithFeed calls follow with a feed of a pipeline's events, which runs until follow
// returns. The listener connects as conn says; nil is for the way of the pool.
func WithFeed(
	ctx context.Context, st *store.Store, pool *pgxpool.Pool, conn *pgx.ConnConfig,
	follow func(context.Context, *eventfeed.Feed) error,
) error {
	listener := notify.New(pool, notify.Options{Channels: EventChannels(st.Graph()), ConnConfig: conn})
	f := eventfeed.New(eventfeed.Options{Reader: st, Wake: listener.Wakes})
	g, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	g.Go(func() error { return listener.Run(ctx) })
	g.Go(func() error { return f.Run(ctx) })
	g.Go(func() error {
		defer stop()
		return follow(ctx, f)
	})
	return g.Wait()
}

// FollowEvents calls handle with each event after a position, until handle fails or ctx
// is done. A handle that is slower than the feed loses nothing: the feed drops the
// subscription, and the next one begins after the last event that was handled.
func FollowEvents(ctx context.Context, f *eventfeed.Feed, after int64, handle func(store.Event) error) error {
	return resubscribe(ctx, func() error {
		sub := f.Subscribe(after, nil)
		defer sub.Close()
		for {
			events, err := sub.Next(ctx)
			if err != nil {
				return err
			}
			for _, e := range events {
				if err := handle(e); err != nil {
					return err
				}
				after = e.ID
			}
		}
	})
}

// resubscribe calls read again whenever it was too slow for the feed.
func resubscribe(ctx context.Context, read func() error) error {
	for {
		err := read()
		switch {
		case errors.Is(err, eventfeed.ErrClosed):
			return context.Cause(ctx)
		case !errors.Is(err, eventfeed.ErrSlow):
			return err
		}
	}
}

// ErrNotCompleted says that a task has ended without being completed.
var ErrNotCompleted = errors.New("the task was not completed")

// TaskFollower handles the events of one task until nothing more will happen to it. Run
// reads them from a feed. A caller with a subscription of its own calls Start, and until
// the task has ended HandleNew.
type TaskFollower struct {
	Store  *store.Store
	Task   store.ID
	After  int64                     // events up to this one have been handled; eventfeed.Now begins with new ones
	Handle func([]store.Event) error // is called with the events in order, with each once
	// Delayed is called every two seconds while the task has ended, but an open
	// transaction of another client hides its last events. An error ends the wait.
	Delayed func() error

	State store.Task // as last read

	isFinished bool // in State, or the task is deleted; events may be missing
}

// Run handles the events that have happened, and those of the feed until the task has
// ended. It returns ErrNotCompleted, or store.ErrNotFound for a task that was deleted.
func (f *TaskFollower) Run(ctx context.Context, feed *eventfeed.Feed) error {
	ended, err := f.Start(ctx)
	if err == nil && !ended {
		err = resubscribe(ctx, func() error { return f.handleFrom(ctx, feed) })
	}
	if err == nil && f.State.Status != store.StatusCompleted {
		return ErrNotCompleted
	}
	return err
}

func (f *TaskFollower) handleFrom(ctx context.Context, feed *eventfeed.Feed) error {
	sub := feed.Subscribe(f.After, func(e store.Event) bool { return e.Task == f.Task })
	defer sub.Close()
	for {
		events, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if ended, err := f.HandleNew(ctx, events); ended || err != nil {
			return err
		}
	}
}

// Start handles the events that have happened, and reports whether the task has ended. If
// it was deleted, the error is store.ErrNotFound.
func (f *TaskFollower) Start(ctx context.Context) (ended bool, err error) {
	watermark, err := f.Store.EventWatermark(ctx)
	if err != nil {
		return false, err
	}
	if f.After == eventfeed.Now {
		f.After = watermark
	}
	if _, err := f.handleUpTo(ctx, watermark); err != nil {
		return false, err
	}
	return f.checkEnd(ctx)
}

// HandleNew handles the events of the task since the last call, and reports whether they
// are the last, with store.ErrNotFound if it was deleted. If Start was ended by Delayed,
// HandleNew without events waits again.
func (f *TaskFollower) HandleNew(ctx context.Context, events []store.Event) (ended bool, err error) {
	for len(events) > 0 && events[0].ID <= f.After { // checkEnd was ahead of the feed
		events = events[1:]
	}
	if err := f.handle(events); err != nil {
		return false, err
	}
	isProgress := func(e store.Event) bool { return e.Type == store.StageProgress }
	if !f.isFinished && !slices.ContainsFunc(events, func(e store.Event) bool { return !isProgress(e) }) {
		return false, nil
	}
	return f.checkEnd(ctx)
}

func (f *TaskFollower) handle(events []store.Event) error {
	if len(events) == 0 {
		return nil
	}
	f.After = events[len(events)-1].ID
	return f.Handle(events)
}

// handleUpTo handles the stored events up to a position, and reports whether there are any.
func (f *TaskFollower) handleUpTo(ctx context.Context, last int64) (found bool, err error) {
	for f.After < last {
		events, err := f.Store.Events(ctx, store.EventQuery{After: f.After, Task: f.Task})
		if err != nil {
			return found, err
		}
		isAll := len(events) == 0
		if i := slices.IndexFunc(events, func(e store.Event) bool { return e.ID > last }); i >= 0 {
			events, isAll = events[:i], true
		}
		found = found || len(events) > 0
		if err := f.handle(events); err != nil {
			return found, err
		}
		if isAll {
			f.After = last
		}
	}
	return found, nil
}

// checkEnd reports whether nothing will happen to the task any more, after it has
// handled the events that are left. It asks for the task rather than look for an event:
// another stage may still run after one died, and the last event may be pruned.
func (f *TaskFollower) checkEnd(ctx context.Context) (ended bool, err error) {
	for {
		state, missing := f.Store.Get(ctx, f.Task)
		switch {
		case missing == nil:
			f.State = state
			f.isFinished = state.IsFinished(f.Store.Graph()) || !state.OverriddenBy.IsZero()
		case errors.Is(missing, store.ErrNotFound):
			f.isFinished = true
		default:
			return false, missing
		}
		if !f.isFinished {
			return false, nil
		}
		// An event that State does not show may be a retry.
		if found, err := f.handleRest(ctx); !found || err != nil {
			return err == nil, cmp.Or(err, missing)
		}
	}
}

// delayedAfter is how long events may be hidden before Delayed is called.
const delayedAfter = 2 * time.Second

// handleRest handles the events recorded by now, and reports whether there are any. Those
// behind an open transaction of another client become visible when that ends.
func (f *TaskFollower) handleRest(ctx context.Context) (found bool, err error) {
	newest, err := f.Store.LastAllocatedEvent(ctx)
	if err != nil {
		return false, err
	}
	for start := time.Now(); ; {
		watermark, err := f.Store.EventWatermark(ctx)
		if err != nil {
			return found, err
		}
		some, err := f.handleUpTo(ctx, min(watermark, newest))
		found = found || some
		if err != nil || watermark >= newest {
			return found, err
		}
		if time.Since(start) > delayedAfter {
			if err := f.Delayed(); err != nil {
				return found, err
			}
			start = time.Now()
		}
		if err := ctxsleep.For(ctx, 20*time.Millisecond); err != nil {
			return found, err
		}
	}
}
