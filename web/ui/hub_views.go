package ui

import (
	"context"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// view is what all pages with one key look at. All but the key is the hub's.
type view struct {
	key         viewKey
	owner       string    // who looked at it first
	inFlight    *viewRead // if it is being read
	screen      screen
	hasScreen   bool          // now has something
	upToDate    bool          // nothing has happened since it was read
	readStarted time.Time     // when the last read began
	readEnded   time.Time     // when it ended
	lastGood    time.Time     // when the last one began that went well
	readTook    time.Duration // how long the last took
	err         error         // what went wrong with it
	users       int           // who are about to read it
	subscribers map[*subscriber]struct{}
}

// slowFrom is how long a read takes that is slow.
const slowRead = 500 * time.Millisecond

func (v *view) readPace() readPace {
	if v.readTook > slowRead {
		return slow
	}
	return quick
}

// soon reports whether it is too early to read it anew, of one's own accord.
func (v *view) isTooEarly() bool {
	return time.Since(v.readEnded) < max(v.key.minInterval(), slowFactor*v.readTook)
}

// keep is how long what was read is good enough.
func (k viewKey) minInterval() time.Duration {
	if k.page == "latency" {
		return 10 * time.Second
	}
	return redrawInterval
}

// page is an open stream.
type subscriber struct {
	changes    chan string
	version    string // the version that it shows once it has all of changes
	overflowed bool   // it could not keep up, and is to be sent everything
}

// put adds a message, if the page keeps up.
func (p *subscriber) enqueue(text string) {
	select {
	case p.changes <- text:
	default:
		p.overflowed = true
	}
}

// How many views are kept, of each viewer and in all: each is read on its own, and
// whoever opens ever more of them would have everybody wait.
const (
	maxViewsPerViewer = 64
	maxViews          = 256
)

// use finds a view, and keeps it from being forgotten until it is left. Where there
// are too many it is one that is not kept.
func (h *hub) acquire(k viewKey, who string) (v *view, kept bool, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.views[k]
	if !ok {
		v = &view{key: k, owner: who, subscribers: make(map[*subscriber]struct{})}
		if !h.hasRoom(who) {
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

// room reports whether one more view can be kept. It is called with h.mu held.
func (h *hub) hasRoom(who string) bool {
	h.dropUnused()
	own := 0
	for _, v := range h.views {
		if v.owner == who {
			own++
		}
	}
	return own < maxViewsPerViewer && len(h.views) < maxViews
}

// forget drops what nobody looks at. It is called with h.mu held.
func (h *hub) dropUnused() {
	for k, v := range h.views {
		if v.users == 0 && len(v.subscribers) == 0 && !v.isTooEarly() {
			delete(h.views, k)
		}
	}
}

// changed says that what was read is not so any more: somebody has done something,
// and wants to see it.
func (h *hub) invalidate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastAction = time.Now()
	for _, v := range h.views {
		v.readEnded, v.upToDate = time.Time{}, false
	}
}

// message is one of server-sent events. Its id is the version that the page has
// with it; a browser that comes back says which it has seen last.
func message(event, id, data string) string {
	var b strings.Builder
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	if event != "" {
		b.WriteString("event: " + event + "\n")
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(data, "\r", "&#13;"), "\n") {
		b.WriteString("data: " + line + "\n")
	}
	b.WriteString("\n")
	return b.String()
}

// join adds a page that shows the version at. What it is to be shown first is in
// its queue.
func (h *hub) subscribe(ctx context.Context, k viewKey, who, at string) (*view, *subscriber, error) {
	v, kept, leave := h.acquire(k, who)
	defer leave()
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
	p := &subscriber{changes: make(chan string, queueLength), version: at}
	switch {
	case v.err != nil || !v.hasScreen: // which may have mended since err
		p.enqueue(message("stale", "", ""))
	case v.screen.version != at:
		p.enqueue(message("", v.screen.version, v.screen.fullUpdate()))
		p.version = v.screen.version
	}
	v.subscribers[p] = struct{}{}
	signal(h.subscribed)
	return v, p, nil
}

func (h *hub) unsubscribe(v *view, p *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(v.subscribers, p)
	h.streamClosed()
}

// closed counts one page less. It is called with h.mu held.
func (h *hub) streamClosed() {
	if h.streams--; h.streams == 0 && h.stopListening != nil {
		h.stopListening()
	}
}

// caughtUp gives a page that could not keep up everything, instead of what was in
// its queue.
func (h *hub) resync(v *view, p *subscriber) (everything string, was bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !p.overflowed {
		return "", false
	}
	for len(p.changes) > 0 {
		<-p.changes
	}
	p.overflowed = false
	if v.hasScreen {
		everything, p.version = message("", v.screen.version, v.screen.fullUpdate()), v.screen.version
	}
	if v.err != nil {
		return everything + message("stale", "", ""), true
	}
	return everything + message("fresh", "", ""), true
}

// lateAfter is for how long a page that is to be read at once may show what there
// was.
const lateAfter = 20 * time.Second

// age is when what the pages of a view show was read, and whether it is older than
// it should be.
func (h *hub) readTime(v *view) (read time.Time, late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return v.lastGood, !v.lastGood.IsZero() && time.Since(v.lastGood) > lateAfter+slowFactor*v.readTook
}

// concerns reports whether an event may change what is seen.
func (k viewKey) isAffectedBy(e store.Event) bool {
	switch k.page {
	case "board", "workers":
		return true
	case "video":
		return e.Task.IsZero() || e.Task.String() == k.values().Get("id")
	case "dead":
		return e.Type != store.StageProgress && e.Type != store.StageStarted && e.Type != store.StageCompleted
	}
	return false // what is left is looked at now and then
}
