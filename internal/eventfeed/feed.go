// Package eventfeed reads a pipeline's events once for a whole process and passes them to any number of
// subscribers: dashboard pages, streams and commands that watch.
//
//	feed := eventfeed.New(eventfeed.Options{Reader: st, Wake: listener})
//	go feed.Run(ctx)                           // and wait for it
//	sub := feed.Subscribe(lastSeen, keep)
//	defer sub.Close()
//	for {
//		events, err := sub.Next(ctx)           // ErrSlow, store.ErrEventsGone: start over
//	}
//
// A subscriber gets every event after the id it names, in order and once: past events from the database, new ones
// from memory. It never delays the reader or another subscriber: a subscriber that is too slow gets [ErrSlow].
// The feed reads the database only while it has subscribers.
//
// The feed stores nothing. After a restart, subscribers continue after the last event they saw.
package eventfeed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

// Now is the event id for a subscriber that wants new events only.
const Now int64 = -1

// ErrSlow says that a subscriber lost events because its queue was full. It may subscribe again after the last
// event it saw.
var ErrSlow = errors.New("events arrive faster than the subscriber takes them")

// ErrClosed says that the feed has stopped.
var ErrClosed = errors.New("the event feed has stopped")

const (
	batchSize = 1000
	// readInterval is the least time between two reads of the database, so that subscribers cannot take its
	// capacity from workers. After a quiet period the feed reads at once.
	readInterval = 20 * time.Millisecond
	// Subscribers are woken wakeGroup at a time, wakeInterval apart. Otherwise the workers of this process would
	// wait for a processor until hundreds of subscribers have written their events.
	wakeGroup    = 16
	wakeInterval = time.Millisecond
)

// EventReader reads events. A *[store.Store] does.
type EventReader interface {
	Events(ctx context.Context, q store.EventQuery) ([]store.Event, error)
	EventWatermark(ctx context.Context) (int64, error)
}

// WakeSource signals that there may be events. A *notify.Wakes does.
type WakeSource interface {
	C() <-chan struct{}
	Take() []notify.Wake
}

// Options configure a [Feed]. Reader is required.
type Options struct {
	Reader EventReader
	// Wake signals when to read. Default: the feed only polls.
	Wake WakeSource
	// PollInterval is the longest time between two reads. Default 2 s.
	PollInterval time.Duration
	// BufferSize is how many events a subscriber may lag behind. Default 1024.
	BufferSize int
	// OnError is called with the first error of a series of failed reads, and with nil at the next success. It
	// must not block.
	OnError func(err error)
}

// Feed reads events for its subscribers. Create it with [New].
type Feed struct {
	opts       Options
	subscribed chan struct{} // signals a new subscriber

	mu       sync.Mutex
	subs     map[*Subscription]struct{}
	lastRead int64 // id of the last event read; Now while there are no subscribers
	closed   bool
}

// New returns a Feed. It reads nothing before [Feed.Run].
func New(o Options) *Feed {
	if o.PollInterval <= 0 {
		o.PollInterval = 2 * time.Second
	}
	if o.BufferSize <= 0 {
		o.BufferSize = 1024
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	return &Feed{opts: o, subscribed: make(chan struct{}, 1), subs: make(map[*Subscription]struct{}), lastRead: Now}
}

// Run reads events until ctx is done, and returns nil.
func (f *Feed) Run(ctx context.Context) error {
	defer f.close()
	var wakes <-chan struct{}
	if f.opts.Wake != nil {
		wakes = f.opts.Wake.C()
	}
	timer := time.NewTimer(f.opts.PollInterval)
	defer timer.Stop()
	failing := false
	var notBefore time.Time // of the next read
	for {
		if f.hasSubscribers() {
			mayHaveMore, err := f.read(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if (err != nil) != failing {
				failing = err != nil
				f.opts.OnError(err)
			}
			if mayHaveMore {
				timer.Reset(readInterval)
			} else {
				timer.Reset(f.opts.PollInterval)
			}
			notBefore = time.Now().Add(readInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.subscribed:
		case <-wakes:
			f.opts.Wake.Take()
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(notBefore)):
		}
	}
}

func (f *Feed) hasSubscribers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subs) == 0 {
		f.lastRead = Now
	}
	return len(f.subs) > 0
}

// read reads one batch and delivers it. It reports whether there may be more events.
func (f *Feed) read(ctx context.Context) (mayHaveMore bool, err error) {
	f.mu.Lock()
	after := f.lastRead
	f.mu.Unlock()
	if after == Now {
		if after, err = f.opts.Reader.EventWatermark(ctx); err != nil {
			return false, err
		}
		f.wake(ctx, f.deliver(after, nil))
		return true, nil
	}
	f.wake(ctx, f.deliver(after, nil))
	events, err := f.opts.Reader.Events(ctx, store.EventQuery{After: after, Limit: batchSize})
	if errors.Is(err, store.ErrEventsGone) {
		f.failLagging(err)
		return true, nil
	}
	if err != nil || len(events) == 0 {
		return false, err
	}
	f.wake(ctx, f.deliver(events[len(events)-1].ID, events))
	return len(events) == batchSize, nil
}

// deliver queues events up to lastRead and returns the subscribers to wake. A subscriber that is new since the
// last call reads up to lastRead from the database itself; its queue starts after that.
func (f *Feed) deliver(lastRead int64, events []store.Event) (wake []*Subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastRead = lastRead
	for s := range f.subs {
		if !s.joined {
			s.join(lastRead)
		} else if !s.add(events) {
			continue
		}
		wake = append(wake, s)
	}
	return wake
}

// wake signals subscribers, a group at a time.
func (f *Feed) wake(ctx context.Context, subs []*Subscription) {
	for group := range slices.Chunk(subs, wakeGroup) {
		for _, s := range group {
			signal(s.wake)
		}
		if len(subs) <= wakeGroup {
			return
		}
		select {
		case <-ctx.Done(): // close signals the remaining ones
			return
		case <-time.After(wakeInterval):
		}
	}
}

// failLagging fails the subscribers whose next events are deleted. Those ahead of the feed join again, and the
// database then decides whether their events are deleted, too.
func (f *Feed) failLagging(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		if s.joined && s.lastSeen > f.lastRead {
			s.joined = false
		} else if s.joined {
			s.fail(err)
		}
	}
	f.lastRead = Now
}

func (f *Feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for s := range f.subs {
		s.fail(ErrClosed)
	}
}
