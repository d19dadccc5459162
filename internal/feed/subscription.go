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
// returns true for are handed out; nil is for all. The feed calls keep under its lock,
// for every event: it must be quick, must not block, and must not call the feed. The
// subscription must be closed.
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
// ctx: [ErrSlow], [store.ErrEventsGone] where the events to begin with are deleted or
// never were, [ErrClosed], or that of the database while the past is read.
func (s *Subscription) Next(ctx context.Context) ([]store.Event, error) {
	for {
		events, past, err := s.take()
		if err != nil || len(events) > 0 {
			return events, err
		}
		if past.from != past.upto {
			events, err := s.catchUp(ctx, past)
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

// past is what a subscriber has yet to read from the database. One that is ahead of
// the feed, because it comes from a process whose feed was, has nothing to read there;
// but whether its place is one at all only the database can tell.
type past struct{ from, upto int64 }

// take returns what is in the queue, or what is to be read before it.
func (s *Subscription) take() ([]store.Event, past, error) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, past{}, s.err
	case !s.joined:
		return nil, past{}, nil
	case s.at != s.upto:
		return nil, past{s.at, s.upto}, nil
	}
	events := s.queue
	s.queue = nil
	return events, past{}, nil
}

// part is how many events of the past a subscriber reads at once. Each has its own,
// and after a restart there are hundreds who do.
const part = 200

// catchUp reads a part of the past. Only where the queue has not been given up
// meanwhile is a short answer the end of it: else there is more that this answer is
// too old to know of.
func (s *Subscription) catchUp(ctx context.Context, p past) ([]store.Event, error) {
	events, err := s.feed.opts.Source.Events(ctx, store.EventQuery{After: p.from, Limit: part})
	if err != nil {
		return nil, err
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if p.from > p.upto {
		if s.upto == p.upto { // not joined anew meanwhile
			s.upto = s.at // and the queue has what comes after that
		}
		return nil, nil
	}
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
	if s.upto == p.upto && (len(events) < part || events[len(events)-1].ID > p.upto) {
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

// wants reports whether an event is to be kept, which one that was seen is not.
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
