package feed

import (
	"context"

	"github.com/cuelight/cuelight/store"
)

// Subscription is one subscriber's place in a [Feed]. It is for one goroutine.
type Subscription struct {
	feed *Feed
	keep func(store.Event) bool
	news chan struct{} // there is something for Next

	// What follows is guarded by the feed's mutex.
	joined bool
	at     int64         // while it is behind: the last event that was looked at
	upto   int64         // from the database up to here; then the queue
	queue  []store.Event // those to keep after upto
	err    error
}

// Subscribe begins to read after an event, or after [Now]. Only events that keep
// returns true for are handed out; nil is for all. It must be closed.
func (f *Feed) Subscribe(after int64, keep func(store.Event) bool) *Subscription {
	if keep == nil {
		keep = func(store.Event) bool { return true }
	}
	s := &Subscription{feed: f, keep: keep, at: after, news: make(chan struct{}, 1)}
	f.mu.Lock()
	f.subs[s] = struct{}{}
	if f.closed {
		s.fail(ErrClosed)
	}
	f.mu.Unlock()
	poke(f.join)
	return s
}

// Close gives up the place. Closing again does nothing.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	delete(s.feed.subs, s)
}

// Next waits for events and returns those that are there, at least one. Others may
// have the same slice: it is not to be changed. An error is for good, but that of
// ctx: [ErrSlow], [store.ErrEventsGone] where the events to begin with are deleted,
// [ErrClosed], or that of the database while the past is read.
func (s *Subscription) Next(ctx context.Context) ([]store.Event, error) {
	for {
		events, behind, err := s.take()
		if err != nil || len(events) > 0 {
			return events, err
		}
		if behind {
			events, err := s.catchUp(ctx)
			if err != nil || len(events) > 0 {
				return events, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.news:
		}
	}
}

// take returns what is in the queue, unless there is something before it.
func (s *Subscription) take() (events []store.Event, behind bool, err error) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, false, s.err
	case !s.joined:
		return nil, false, nil
	case s.at < s.upto:
		return nil, true, nil
	}
	events, s.queue = s.queue, nil
	return events, false, nil
}

// catchUp reads one batch of the past.
func (s *Subscription) catchUp(ctx context.Context) ([]store.Event, error) {
	events, err := s.feed.opts.Source.Events(ctx, store.EventQuery{After: s.at, Limit: batch})
	if err != nil {
		return nil, err
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	kept := events[:0]
	for _, e := range events {
		if e.ID > s.upto {
			break
		}
		s.at = e.ID
		if s.keep(e) {
			kept = append(kept, e)
		}
	}
	if len(events) < batch || events[len(events)-1].ID > s.upto {
		s.at = s.upto
	}
	return kept, nil
}

// joinAt takes the place at which the feed is.
func (s *Subscription) joinAt(at int64) {
	s.joined, s.upto = true, at
	if s.at == Now {
		s.at = at
	}
}

// add puts events into the queue, and reports whether there is news in it. One that
// overflows while the past is still being read is given up, and read as the past,
// too.
func (s *Subscription) add(events []store.Event) (news bool) {
	if s.err != nil {
		return false
	}
	had := len(s.queue)
	s.enqueue(events)
	switch {
	case len(s.queue) <= s.feed.opts.Buffer:
	case s.at < s.upto:
		s.queue, s.upto = nil, events[len(events)-1].ID
	default:
		s.fail(ErrSlow)
		return false // it was told
	}
	return len(s.queue) > had
}

// enqueue puts those events into the queue that are to be kept. Most subscribers want
// all and have an empty queue, and share them.
func (s *Subscription) enqueue(events []store.Event) {
	if len(s.queue) == 0 {
		n := 0
		for n < len(events) && s.wants(events[n]) {
			n++
		}
		if n > 0 {
			s.queue = events[:n:n]
		}
		events = events[n:]
	}
	for _, e := range events {
		if s.wants(e) {
			s.queue = append(s.queue, e)
		}
	}
}

// wants reports whether an event is to be kept. One that was seen has come from a
// feed that was ahead of this one.
func (s *Subscription) wants(e store.Event) bool { return s.at < e.ID && s.keep(e) }

func (s *Subscription) fail(err error) {
	s.err, s.queue = err, nil
	poke(s.news)
}

// poke leaves one value in c, which has room for one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
