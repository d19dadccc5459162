package ui

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

const (
	redrawInterval = 250 * time.Millisecond // at most, what is open
	pollInterval   = 2 * time.Second        // at what no event tells of
	queueLength    = 16                     // changes that an open page may be behind
)

// pace is how long a view takes to read. What is slow is drawn by a goroutine of its
// own, so that it holds up nothing else.
type readPace int

const (
	quick readPace = iota
	slow
)

// hub keeps the views that somebody looks at.
type hub struct {
	load       func(context.Context, viewKey) (screen, error)
	onRead     func(viewKey, error) // of each read, with nil of one that went well
	maxStreams int                  // pages that may be open
	redraw     [2]chan struct{}     // something is to be drawn, by pace
	stopped    chan struct{}        // closed when nothing will be drawn any more

	subscribed chan struct{} // somebody looks

	mu            sync.Mutex
	views         map[viewKey]*view
	streams       int
	lastAction    time.Time          // when somebody last did something here
	stopListening context.CancelFunc // nobody looks any more; nil while none is told
}

var errTooManyPages = errors.New("too many open pages")

func (h *hub) init(load func(context.Context, viewKey) (screen, error), told func(viewKey, error), most int) {
	h.load, h.onRead, h.maxStreams = load, told, most
	h.subscribed, h.stopped = make(chan struct{}, 1), make(chan struct{})
	for of := range h.redraw {
		h.redraw[of] = make(chan struct{}, 1)
	}
	h.views = make(map[viewKey]*view)
}

// ended is closed once run has returned: the streams end with it, so that a server
// that waits for its requests can stop.
func (h *hub) done() <-chan struct{} { return h.stopped }

// run draws what is open whenever something happens.
func (h *hub) run(ctx context.Context, subscribe func(keep func(store.Event) bool) Subscription) error {
	defer close(h.stopped)
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for subscribe != nil && h.waitForSubscriber(ctx) {
			h.listen(ctx, subscribe)
			sleep(ctx, redrawInterval)
		}
	})
	all.Go(func() { h.redrawLoop(ctx, slow) })
	h.redrawLoop(ctx, quick)
	return nil
}

// follow draws what is of a pace until ctx is done.
func (h *hub) redrawLoop(ctx context.Context, of readPace) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			h.markOutdated(nil)
		case <-h.redraw[of]:
		}
		begun := time.Now()
		again := h.refreshOpen(ctx, of)
		// Half of the time, its connection is somebody else's.
		sleep(ctx, max(redrawInterval, time.Since(begun)))
		if again {
			signal(h.redraw[of])
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// drawOpen draws what has changed and is looked at, of a pace; again says that
// something was not to be drawn so soon, or is being read for somebody.
func (h *hub) refreshOpen(ctx context.Context, of readPace) (again bool) {
	h.mu.Lock()
	var todo []*view
	for _, v := range h.views {
		switch {
		case len(v.subscribers) == 0 || v.readPace() != of || v.upToDate && v.err == nil:
		case v.inFlight != nil || v.isTooEarly():
			again = true
		default:
			todo = append(todo, v)
		}
	}
	h.dropUnused()
	h.mu.Unlock()
	for _, v := range todo {
		if ctx.Err() != nil {
			return false
		}
		_, _ = h.refresh(ctx, v) // its pages are told of the error
	}
	return again
}

// crowd waits until somebody looks.
func (h *hub) waitForSubscriber(ctx context.Context) bool {
	for ctx.Err() == nil {
		h.mu.Lock()
		open := h.streams
		h.mu.Unlock()
		if open > 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-h.subscribed:
		}
	}
	return false
}

// listen marks what events concern, for as long as somebody looks. When it ends, or
// an event was missed, nothing is lost: it is seen in what is drawn.
func (h *hub) listen(ctx context.Context, subscribe func(keep func(store.Event) bool) Subscription) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.mu.Lock()
	if h.streams == 0 {
		h.mu.Unlock()
		return
	}
	h.stopListening = cancel
	h.mu.Unlock()
	sub := subscribe(h.isRelevant)
	defer sub.Close()
	h.markOutdated(nil)
	h.redrawAll()
	for {
		events, err := sub.Next(ctx)
		if err != nil {
			return
		}
		if h.markOutdated(events) {
			h.redrawAll()
		}
	}
}

// concerned reports whether somebody looks at what an event may change.
func (h *hub) isRelevant(e store.Event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, v := range h.views {
		if len(v.subscribers) > 0 && k.isAffectedBy(e) {
			return true
		}
	}
	return false
}

func (h *hub) redrawAll() {
	for _, c := range h.redraw {
		signal(c)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// mark says of the views that events concern, or of all, that they are not current
// any more.
func (h *hub) markOutdated(events []store.Event) (any bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, v := range h.views {
		if len(v.subscribers) > 0 && (events == nil || slices.ContainsFunc(events, k.isAffectedBy)) {
			v.upToDate, any = false, true
		}
	}
	return any
}
