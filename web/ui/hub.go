package ui

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

const (
	redrawInterval = 250 * time.Millisecond // minimum between two updates of an open page
	pollInterval   = 2 * time.Second        // for changes without an event
	readTimeout    = 5 * time.Second        // for one read
	slowFactor     = 10                     // what is read is kept this many times longer than its read took
)

// readPace groups views by the time that they take to read. Each group has its own
// goroutine, so that slow views do not delay quick ones.
type readPace int

const (
	quick readPace = iota
	slow
)

// hub keeps the views of open pages up to date and sends the changes to their streams.
type hub struct {
	load       func(context.Context, viewKey) (screen, error)
	onRead     func(viewKey, error) // called after each read, with nil after success
	maxStreams int
	redraw     [2]chan struct{} // by readPace: some view may need a redraw
	stopped    chan struct{}    // closed when run returns
	subscribed chan struct{}    // a stream was opened

	mu            sync.Mutex
	views         map[viewKey]*view
	streams       int                // open now
	stopListening context.CancelFunc // set while events are received; called when the last stream closes
}

func newHub(load func(context.Context, viewKey) (screen, error), onRead func(viewKey, error), maxStreams int) *hub {
	return &hub{
		load: load, onRead: onRead, maxStreams: maxStreams,
		redraw:  [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)},
		stopped: make(chan struct{}), subscribed: make(chan struct{}, 1),
		views: make(map[viewKey]*view),
	}
}

// run redraws open pages until ctx is done. Then the streams end, so that an HTTP
// server can shut down.
func (h *hub) run(ctx context.Context, subscribe func(keep func(store.Event) bool) Subscription) error {
	defer close(h.stopped)
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() {
		for subscribe != nil && h.waitForSubscriber(ctx) {
			h.listen(ctx, subscribe)
			_ = ctxsleep.For(ctx, redrawInterval)
		}
	})
	loops.Go(func() { h.redrawLoop(ctx, slow) })
	h.redrawLoop(ctx, quick)
	return nil
}

// redrawLoop redraws the open views of one pace until ctx is done.
func (h *hub) redrawLoop(ctx context.Context, pace readPace) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			h.markOutdated(nil)
		case <-h.redraw[pace]:
		}
		started := time.Now()
		again := h.refreshOpen(ctx, pace)
		// The loop uses its database connection for at most half of the time.
		_ = ctxsleep.For(ctx, max(redrawInterval, time.Since(started)))
		if again {
			signal(h.redraw[pace])
		}
	}
}

// refreshOpen refreshes the outdated open views of a pace. It returns true if it
// skipped a view that was read too recently or is being read.
func (h *hub) refreshOpen(ctx context.Context, pace readPace) (again bool) {
	h.mu.Lock()
	var todo []*view
	for _, v := range h.views {
		switch {
		case len(v.subscribers) == 0 || v.readPace() != pace || v.upToDate && v.err == nil:
		case v.readsInFlight > 0 || v.isTooEarly():
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
		v.reads.Invalidate()
		_, _ = h.refresh(ctx, v) // the error is sent to the streams
	}
	return again
}

// waitForSubscriber waits until a stream is open. It returns false when ctx is done.
func (h *hub) waitForSubscriber(ctx context.Context) bool {
	for ctx.Err() == nil {
		h.mu.Lock()
		streams := h.streams
		h.mu.Unlock()
		if streams > 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-h.subscribed:
		}
	}
	return false
}

// listen marks the views that events affect as outdated, while streams are open. A
// missed event only delays an update until the next poll.
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
	events := subscribe(h.isRelevant)
	defer events.Close()
	h.markOutdated(nil)
	h.redrawAll()
	for {
		batch, err := events.Next(ctx)
		if err != nil {
			return
		}
		if h.markOutdated(batch) {
			h.redrawAll()
		}
	}
}

// isRelevant reports whether an event may change an open page.
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

// markOutdated marks the open views that the events affect, or all if events is nil.
func (h *hub) markOutdated(events []store.Event) (marked bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, v := range h.views {
		if len(v.subscribers) > 0 && (events == nil || slices.ContainsFunc(events, k.isAffectedBy)) {
			v.upToDate, marked = false, true
		}
	}
	return marked
}

func (h *hub) redrawAll() {
	for _, c := range h.redraw {
		signal(c)
	}
}

// signal sends to a channel with a buffer of one, unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
