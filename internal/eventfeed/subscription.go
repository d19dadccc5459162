package eventfeed

import (
	"context"

	"github.com/cuelight/cuelight/store"
)

// catchUpSize is how many past events a subscriber reads at once. It is small because after a restart hundreds of
// subscribers read at the same time.
const catchUpSize = 200

// Subscription is one subscriber of a [Feed]. One goroutine may use it.
type Subscription struct {
	feed *Feed
	keep func(store.Event) bool
	wake chan struct{} // signals that Next has something to do

	// The feed's mutex guards the fields below.
	joined bool
	// Events up to queueAfter come from the database, later ones from queue. While lastSeen differs from
	// queueAfter, the subscriber catches up: lastSeen is the id of the last event it read from the database.
	lastSeen, queueAfter int64
	queue                []store.Event
	err                  error
}

// Subscribe starts after the event with an id, or after [Now]. Next returns only the events for which keep
// returns true; nil keeps all. The feed calls keep under its lock for every event: keep must be quick, must not
// block, and must not call the feed. The caller must close the subscription.
func (f *Feed) Subscribe(after int64, keep func(store.Event) bool) *Subscription {
	if keep == nil {
		keep = func(store.Event) bool { return true }
	}
	s := &Subscription{feed: f, keep: keep, lastSeen: after, wake: make(chan struct{}, 1)}
	f.mu.Lock()
	f.subs[s] = struct{}{}
	if f.closed {
		s.fail(ErrClosed)
	}
	f.mu.Unlock()
	signal(f.subscribed)
	return s
}

// Close ends the subscription. A second call does nothing.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	delete(s.feed.subs, s)
}

// Next waits for events and returns at least one. Subscribers share the slice: do not change it. Errors other
// than that of ctx are permanent: [ErrSlow], [store.ErrEventsGone] if the events to start with are deleted or
// never existed, [ErrClosed], or an error of the database while past events are read.
func (s *Subscription) Next(ctx context.Context) ([]store.Event, error) {
	for {
		events, past, err := s.take()
		if err != nil || len(events) > 0 {
			return events, err
		}
		if past.after != past.upTo {
			events, err := s.catchUp(ctx, past)
			if err != nil || len(events) > 0 {
				return events, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.wake:
		}
	}
}

// eventRange is what a subscriber has to read from the database. If after is larger than upTo, the subscriber is
// ahead of the feed because it was connected to another process. It then reads only to find out whether the
// database knows its id.
type eventRange struct{ after, upTo int64 }

// take returns the queued events, or the range to read before them.
func (s *Subscription) take() ([]store.Event, eventRange, error) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, eventRange{}, s.err
	case !s.joined:
		return nil, eventRange{}, nil
	case s.lastSeen != s.queueAfter:
		return nil, eventRange{s.lastSeen, s.queueAfter}, nil
	}
	events := s.queue
	s.queue = nil
	return events, eventRange{}, nil
}

// catchUp reads some past events. Fewer than catchUpSize mean that the past is read, unless the queue overflowed
// during the query: then queueAfter has moved, and there are events that the query did not see.
func (s *Subscription) catchUp(ctx context.Context, past eventRange) ([]store.Event, error) {
	events, err := s.feed.opts.Reader.Events(ctx, store.EventQuery{After: past.after, Limit: catchUpSize})
	if err != nil {
		return nil, err
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	moved := s.queueAfter != past.upTo
	if past.after > past.upTo {
		if !moved {
			s.queueAfter = s.lastSeen
		}
		return nil, nil
	}
	kept := events[:0]
	for _, e := range events {
		if e.ID > s.queueAfter {
			break
		}
		s.lastSeen = e.ID
		if s.keep(e) {
			kept = append(kept, e)
		}
	}
	if !moved && (len(events) < catchUpSize || events[len(events)-1].ID > past.upTo) {
		s.lastSeen = s.queueAfter
	}
	return kept, nil
}

// join starts the queue after the last event that the feed has read.
func (s *Subscription) join(lastRead int64) {
	s.joined, s.queueAfter = true, lastRead
	if s.lastSeen == Now {
		s.lastSeen = lastRead
	}
}

// add queues events and reports whether any was kept. If the queue overflows while the subscriber catches up,
// its events are dropped and read from the database, too.
func (s *Subscription) add(events []store.Event) bool {
	if s.err != nil {
		return false
	}
	before := len(s.queue)
	s.enqueue(events)
	switch {
	case len(s.queue) <= s.feed.opts.BufferSize:
	case s.lastSeen < s.queueAfter:
		s.queue, s.queueAfter = nil, events[len(events)-1].ID
	default:
		s.fail(ErrSlow)
		return false // fail has signalled it
	}
	return len(s.queue) > before
}

// enqueue queues the wanted events. Most subscribers want all events and have an empty queue; they share one
// slice.
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

func (s *Subscription) wants(e store.Event) bool { return s.lastSeen < e.ID && s.keep(e) }

func (s *Subscription) fail(err error) {
	s.err, s.queue = err, nil
	signal(s.wake)
}

// signal puts a value into c, which has room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
