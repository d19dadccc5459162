// Package feed reads a pipeline's events once for a whole process and hands them to
// any number of subscribers: pages, streams, watchers.
//
//	f := feed.New(feed.Options{Source: st, Wakes: wakes})
//	go f.Run(ctx)                              // and wait for it
//	sub := f.Subscribe(lastSeen, keep)
//	defer sub.Close()
//	for {
//		events, err := sub.Next(ctx)           // ErrSlow, store.ErrEventsGone: begin anew
//	}
//
// A subscriber gets every event after the one it names, in order, each once: those
// of the past from the database, the others as they come. It never holds up the
// reading or another subscriber: who takes its events too slowly loses its place and
// is told so, by [ErrSlow]. The database is read only while somebody is subscribed.
//
// It makes nothing up and keeps nothing: after a restart, subscribers go on from the
// last event they saw.
package feed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Now is the event to read on from for leaving out all that has happened.
const Now int64 = -1

// ErrSlow says that a subscriber has lost its place, because more happened than it
// took. It may subscribe again after the last event it saw, or look anew.
var ErrSlow = errors.New("events come faster than they are taken")

// ErrClosed says that the feed has ended.
var ErrClosed = errors.New("the feed of events has ended")

// Source is where events are read. A *[store.Store] is one.
type Source interface {
	Events(ctx context.Context, q store.EventQuery) ([]store.Event, error)
	EventWatermark(ctx context.Context) (int64, error)
}

// Wakes brings the news that there may be events. A *notify.Wakes does.
type Wakes interface {
	C() <-chan struct{}
	Take() []string
}

// Options say what a [Feed] reads. Source must be set.
type Options struct {
	Source Source
	// Wakes says when to read. Without it, only the clock does.
	Wakes Wakes
	// Every is the time after which it reads even without news. Default 2 s.
	Every time.Duration
	// Buffer is how many events a subscriber may be behind. Default 1024.
	Buffer int
	// Trouble is told when the events cannot be read, once until they can, which it
	// is told by a nil. It must not block.
	Trouble func(err error)
}

// Feed is one reader of events. Make it with [New].
type Feed struct {
	opts Options
	join chan struct{} // somebody has subscribed

	mu     sync.Mutex
	subs   map[*Subscription]struct{}
	at     int64 // the last event that was read; Now while nobody is subscribed
	closed bool
}

// New returns a Feed, which does nothing before [Feed.Run].
func New(o Options) *Feed {
	if o.Every <= 0 {
		o.Every = 2 * time.Second
	}
	if o.Buffer <= 0 {
		o.Buffer = 1024
	}
	if o.Trouble == nil {
		o.Trouble = func(error) {}
	}
	return &Feed{opts: o, join: make(chan struct{}, 1), subs: make(map[*Subscription]struct{}), at: Now}
}

// batch is how many events are read at once, and pace the least time from one
// reading to the next, however much happens: who looks on does not take the database
// from those who work. What happens after a while of quiet is read at once.
const batch, pace = 1000, 20 * time.Millisecond

// crowd is how many subscribers are woken at once, and apart the time until the next
// are: else those who work in this process would wait for the processor until
// hundreds have written what there is to write.
const crowd, apart = 16, time.Millisecond

// Run reads until ctx is done, and returns nil.
func (f *Feed) Run(ctx context.Context) error {
	defer f.close()
	var news <-chan struct{}
	if f.opts.Wakes != nil {
		news = f.opts.Wakes.C()
	}
	timer := time.NewTimer(f.opts.Every)
	defer timer.Stop()
	failed := false
	var next time.Time // not to be read before
	for {
		if f.watched() {
			full, err := f.read(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if (err != nil) != failed {
				failed = err != nil
				f.opts.Trouble(err)
			}
			if full {
				timer.Reset(pace)
			} else {
				timer.Reset(f.opts.Every)
			}
			next = time.Now().Add(pace)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.join:
		case <-news:
			f.opts.Wakes.Take()
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
		}
	}
}

// watched reports whether anybody is subscribed.
func (f *Feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subs) == 0 {
		f.at = Now
	}
	return len(f.subs) > 0
}

// read reads one batch and hands it out. It reports whether there may be more.
func (f *Feed) read(ctx context.Context) (full bool, err error) {
	f.mu.Lock()
	at := f.at
	f.mu.Unlock()
	if at == Now {
		if at, err = f.opts.Source.EventWatermark(ctx); err != nil {
			return false, err
		}
		f.wake(ctx, f.arrive(at, nil))
		return true, nil // to see what has come since
	}
	f.wake(ctx, f.arrive(at, nil))
	events, err := f.opts.Source.Events(ctx, store.EventQuery{After: at, Limit: batch})
	if errors.Is(err, store.ErrEventsGone) {
		f.lose(err)
		return true, nil
	}
	if err != nil || len(events) == 0 {
		return false, err
	}
	f.wake(ctx, f.arrive(events[len(events)-1].ID, events))
	return len(events) == batch, nil
}

// arrive hands out what was read, and returns who is to be woken for it. Who has
// subscribed since the last time reads up to there from the database, and has what
// comes from then on kept for it.
func (f *Feed) arrive(at int64, events []store.Event) (news []*Subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = at
	for s := range f.subs {
		if !s.joined {
			s.joinAt(at)
		} else if !s.add(events) {
			continue
		}
		news = append(news, s)
	}
	return news
}

// wake tells subscribers that there is something for them, a few at a time.
func (f *Feed) wake(ctx context.Context, subs []*Subscription) {
	for few := range slices.Chunk(subs, crowd) {
		for _, s := range few {
			poke(s.news)
		}
		if len(subs) <= crowd {
			return
		}
		select {
		case <-ctx.Done(): // those who were not woken are by the end of the feed
			return
		case <-time.After(apart):
		}
	}
}

// lose tells subscribers that they have lost their places, but those who are ahead of
// the feed's: they join anew, and the database says whether theirs is lost, too.
func (f *Feed) lose(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		if s.joined && s.at > f.at {
			s.joined = false
		} else if s.joined {
			s.fail(why)
		}
	}
	f.at = Now
}

func (f *Feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for s := range f.subs {
		s.fail(ErrClosed)
	}
}
