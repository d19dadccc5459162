package ops

import (
	"context"
	"errors"
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
	channels := []string{g.RecallChannel(), g.EventsChannel()}
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

// TaskFollower handles the events of one task until nothing more will happen to it.
type TaskFollower struct {
	Store  *store.Store
	Task   store.ID
	After  int64                   // events up to this one have been handled
	Handle func(store.Event) error // is called with each event once
	HeldUp func()                  // is called if a transaction of another client delays the last events
}

// Run handles the events that have happened, and those of the feed until the task has
// ended. It returns ErrNotCompleted, or store.ErrNotFound for a task that was deleted.
func (f *TaskFollower) Run(ctx context.Context, feed *eventfeed.Feed) error {
	watermark, err := f.Store.EventWatermark(ctx)
	if err == nil {
		err = f.readUpTo(ctx, watermark)
	}
	if err != nil {
		return err
	}
	if ended, err := f.checkEnd(ctx); ended || err != nil {
		return err
	}
	return resubscribe(ctx, func() error {
		sub := feed.Subscribe(f.After, func(e store.Event) bool { return e.Task == f.Task })
		defer sub.Close()
		for {
			events, err := sub.Next(ctx)
			if err != nil {
				return err
			}
			if ended, err := f.handle(ctx, events); ended || err != nil {
				return err
			}
		}
	})
}

// handle handles some events and reports whether they are the last.
func (f *TaskFollower) handle(ctx context.Context, events []store.Event) (ended bool, err error) {
	onlyProgress := true
	for _, e := range events {
		if err := f.Handle(e); err != nil {
			return false, err
		}
		f.After = e.ID
		onlyProgress = onlyProgress && e.Type == store.StageProgress
	}
	if onlyProgress {
		return false, nil
	}
	return f.checkEnd(ctx)
}

// readUpTo handles the stored events up to a position.
func (f *TaskFollower) readUpTo(ctx context.Context, last int64) error {
	for f.After < last {
		events, err := f.Store.Events(ctx, store.EventQuery{After: f.After, Task: f.Task})
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.ID > last {
				break
			}
			if err := f.Handle(e); err != nil {
				return err
			}
			f.After = e.ID
		}
		if len(events) == 0 || events[len(events)-1].ID > last {
			f.After = last
		}
	}
	return nil
}

// checkEnd reports whether nothing will happen to the task any more, after it has
// handled the events that are left. It asks for the task rather than look for an event:
// another stage may still run after one died, and the last event may be pruned.
func (f *TaskFollower) checkEnd(ctx context.Context) (ended bool, err error) {
	t, missing := f.Store.Get(ctx, f.Task)
	if missing != nil && !errors.Is(missing, store.ErrNotFound) {
		return false, missing
	}
	if missing == nil && !t.IsFinished(f.Store.Graph()) && t.OverriddenBy.IsZero() {
		return false, nil
	}
	if err := f.readRest(ctx); err != nil {
		return false, err
	}
	switch {
	case missing != nil:
		return true, missing
	case t.Status != store.StatusCompleted:
		return true, ErrNotCompleted
	}
	return true, nil
}

// heldUpAfter is how long the last events may be invisible before HeldUp is called.
const heldUpAfter = 2 * time.Second

// readRest handles the events recorded by now. Those behind an open transaction of
// another client become visible when that ends.
func (f *TaskFollower) readRest(ctx context.Context) error {
	newest, err := f.Store.LastAllocatedEvent(ctx)
	if err != nil {
		return err
	}
	start, reported := time.Now(), false
	for {
		watermark, err := f.Store.EventWatermark(ctx)
		if err == nil {
			err = f.readUpTo(ctx, min(watermark, newest))
		}
		if err != nil || watermark >= newest {
			return err
		}
		if !reported && time.Since(start) > heldUpAfter {
			reported = true
			f.HeldUp()
		}
		if err := ctxsleep.For(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
