package ui

import (
	"context"
	"errors"
	"time"

	"github.com/cuelight/cuelight/internal/readcache"
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

// view is the shared state of all pages with one key. The hub's mutex guards the fields
// below reads.
type view struct {
	key   viewKey
	owner string // the viewer who opened it first
	reads readcache.Cache[screen]

	readsInFlight int           // more than one only after an action of a user
	screen        *screen       // nil before the first successful read
	previous      *screen       // the screen before
	changes       string        // the message that leads from previous to screen
	changed       chan struct{} // closed after each read
	upToDate      bool          // no event arrived since the last read started
	readStarted   time.Time     // of the last read
	readEnded     time.Time     // of the last read
	lastGood      time.Time     // start of the last successful read
	readTook      time.Duration // of the last read
	err           error         // of the last read
	users         int           // callers that are about to read it
	subscribers   map[*subscriber]struct{}
}

// subscriber is the open stream of a page, with what the page shows.
type subscriber struct {
	hub     *hub
	view    *view
	version string
	screen  *screen // nil if only the version is known
	isStale bool
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
		v = &view{key: k, owner: viewer, changed: make(chan struct{}), subscribers: make(map[*subscriber]struct{})}
		v.reads.MaxAge, v.reads.Timeout, v.reads.Factor = redrawInterval, readTimeout, 1
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
	for _, v := range h.views {
		v.reads.Invalidate()
		v.readEnded, v.upToDate = time.Time{}, false
	}
	h.mu.Unlock()
	h.redrawAll()
}

// subscribe adds the stream of a page that shows a version.
func (h *hub) subscribe(ctx context.Context, k viewKey, viewer, version string) (*subscriber, error) {
	v, kept, release := h.acquire(k, viewer)
	defer release()
	h.mu.Lock()
	if !kept || h.streams >= h.maxStreams {
		h.mu.Unlock()
		return nil, errTooManyPages
	}
	h.streams++
	h.mu.Unlock()
	_, err := h.refresh(ctx, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		h.streamClosed()
		return nil, err
	}
	s := &subscriber{hub: h, view: v, version: version}
	v.subscribers[s] = struct{}{}
	signal(h.subscribed)
	return s, nil
}

// close removes the stream.
func (s *subscriber) close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	delete(s.view.subscribers, s)
	s.hub.streamClosed()
}

// streamClosed counts a closed stream. The caller holds h.mu.
func (h *hub) streamClosed() {
	if h.streams--; h.streams == 0 && h.stopListening != nil {
		h.stopListening()
	}
}

// next returns the messages that bring the page up to date. It returns "" if it is, and
// a channel that is closed after the next read.
func (s *subscriber) next() (messages string, changed <-chan struct{}) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	v := s.view
	if isStale := v.err != nil || v.screen == nil; isStale != s.isStale {
		messages = message(map[bool]string{true: "stale", false: "fresh"}[isStale], "", "")
		s.isStale = isStale
	}
	if !s.isStale {
		if s.version != v.screen.version {
			messages += v.update(s.screen)
		}
		s.version, s.screen = v.screen.version, v.screen
	}
	return messages, v.changed
}

// setScreen stores a new screen. The changes from the previous one are rendered once
// for all streams.
func (v *view) setScreen(next screen) {
	v.previous, v.screen, v.changes = v.screen, &next, ""
}

// update returns the message that leads from a screen, or from any page, to the current
// screen.
func (v *view) update(from *screen) string {
	switch {
	case from == nil:
		return message("", v.screen.version, v.screen.fullUpdate())
	case from != v.previous:
		return message("", v.screen.version, v.screen.changesFrom(*from))
	case v.changes == "":
		v.changes = message("", v.screen.version, v.screen.changesFrom(*from))
	}
	return v.changes
}

// readTime returns when the screen was read, and whether that is too long
// ago.
func (s *subscriber) readTime() (at time.Time, isLate bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	v := s.view
	return v.lastGood, !v.lastGood.IsZero() && time.Since(v.lastGood) > lateAfter+slowFactor*v.readTook
}
