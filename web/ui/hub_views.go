package ui

import (
	"context"
	"errors"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Limits of the number of views. Each view is read on its own, so a viewer who opens
// many would slow down all others.
const (
	maxViewsPerViewer = 64
	maxViews          = 256
)

const (
	slowRead  = 500 * time.Millisecond // a read that takes longer is slow
	lateAfter = 20 * time.Second       // a screen older than this, plus slowFactor reads, is late
)

var errTooManyPages = errors.New("too many open pages")

// view is the shared state of all pages with one key. The hub's mutex guards all
// fields but key.
type view struct {
	key         viewKey
	owner       string    // the viewer who opened it first
	inFlight    *viewRead // nil if no read runs
	screen      screen
	hasScreen   bool          // screen is set
	upToDate    bool          // no event arrived since the last read started
	readStarted time.Time     // of the last read
	readEnded   time.Time     // of the last read
	lastGood    time.Time     // start of the last successful read
	readTook    time.Duration // of the last read
	err         error         // of the last read
	users       int           // callers that are about to read it
	subscribers map[*subscriber]struct{}
}

// subscriber is the open stream of a page.
type subscriber struct {
	updates    chan string
	version    string // of the page after all updates are applied
	overflowed bool   // updates was full: the page needs a full update
}

func (v *view) readPace() readPace {
	if v.readTook > slowRead {
		return slow
	}
	return quick
}

// isTooEarly reports whether a periodic read of the view must wait.
func (v *view) isTooEarly() bool {
	return time.Since(v.readEnded) < max(v.key.minInterval(), slowFactor*v.readTook)
}

// minInterval is the minimum time between two periodic reads.
func (k viewKey) minInterval() time.Duration {
	if k.page == "latency" {
		return 10 * time.Second
	}
	return redrawInterval
}

// isAffectedBy reports whether an event may change the view. The latency page is only
// polled.
func (k viewKey) isAffectedBy(e store.Event) bool {
	switch k.page {
	case "board", "workers":
		return true
	case "video":
		return e.Task.IsZero() || e.Task.String() == k.values().Get("id")
	case "dead":
		return e.Type != store.StageProgress && e.Type != store.StageStarted && e.Type != store.StageCompleted
	}
	return false
}

// acquire finds or creates a view and keeps it until release is called. Beyond the
// limits it returns a view that the hub does not keep.
func (h *hub) acquire(k viewKey, viewer string) (v *view, kept bool, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.views[k]
	if !ok {
		v = &view{key: k, owner: viewer, subscribers: make(map[*subscriber]struct{})}
		if !h.hasRoom(viewer) {
			return v, false, func() {}
		}
		h.views[k] = v
	}
	v.users++
	return v, true, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		v.users--
		h.dropUnused()
	}
}

// hasRoom reports whether the hub can keep one more view. The caller holds h.mu.
func (h *hub) hasRoom(viewer string) bool {
	h.dropUnused()
	own := 0
	for _, v := range h.views {
		if v.owner == viewer {
			own++
		}
	}
	return own < maxViewsPerViewer && len(h.views) < maxViews
}

// dropUnused drops views without pages. The caller holds h.mu.
func (h *hub) dropUnused() {
	for k, v := range h.views {
		if v.users == 0 && len(v.subscribers) == 0 && !v.isTooEarly() {
			delete(h.views, k)
		}
	}
}

// invalidate makes the next read of every view a fresh one, after an action of a user.
func (h *hub) invalidate() {
	h.mu.Lock()
	h.lastAction = time.Now()
	for _, v := range h.views {
		v.readEnded, v.upToDate = time.Time{}, false
	}
	h.mu.Unlock()
	h.redrawAll()
}

// subscribe adds the stream of a page that shows a version. The queue of the stream
// starts with what the page needs to be up to date.
func (h *hub) subscribe(ctx context.Context, k viewKey, viewer, version string) (*view, *subscriber, error) {
	v, kept, release := h.acquire(k, viewer)
	defer release()
	h.mu.Lock()
	if !kept || h.streams >= h.maxStreams {
		h.mu.Unlock()
		return nil, nil, errTooManyPages
	}
	h.streams++
	h.mu.Unlock()
	_, err := h.refresh(ctx, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		h.streamClosed()
		return nil, nil, err
	}
	s := &subscriber{updates: make(chan string, queueLength), version: version}
	switch { // by the state of the view: another read may have ended since
	case v.err != nil || !v.hasScreen:
		s.enqueue(message("stale", "", ""))
	case v.screen.version != version:
		s.enqueue(message("", v.screen.version, v.screen.fullUpdate()))
		s.version = v.screen.version
	}
	v.subscribers[s] = struct{}{}
	signal(h.subscribed)
	return v, s, nil
}

func (h *hub) unsubscribe(v *view, s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(v.subscribers, s)
	h.streamClosed()
}

// streamClosed counts a closed stream. The caller holds h.mu.
func (h *hub) streamClosed() {
	if h.streams--; h.streams == 0 && h.stopListening != nil {
		h.stopListening()
	}
}

// enqueue adds a message, or notes that the queue is full.
func (s *subscriber) enqueue(text string) {
	select {
	case s.updates <- text:
	default:
		s.overflowed = true
	}
}

// resync replaces the queue of a stream that overflowed with a full update.
func (h *hub) resync(v *view, s *subscriber) (text string, overflowed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.overflowed {
		return "", false
	}
	for len(s.updates) > 0 {
		<-s.updates
	}
	s.overflowed = false
	if v.hasScreen {
		text, s.version = message("", v.screen.version, v.screen.fullUpdate()), v.screen.version
	}
	if v.err != nil {
		return text + message("stale", "", ""), true
	}
	return text + message("fresh", "", ""), true
}

// readTime returns when the screen of a view was read, and whether that is too long
// ago.
func (h *hub) readTime(v *view) (at time.Time, isLate bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return v.lastGood, !v.lastGood.IsZero() && time.Since(v.lastGood) > lateAfter+slowFactor*v.readTook
}
