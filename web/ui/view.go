package ui

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// view is what all pages with one key look at.
type view struct {
	key  key
	read sync.Mutex // held while it is read, so that one reads for all

	// The rest is the hub's.
	now     screen
	known   bool          // now has something
	current bool          // nothing has happened since it was read
	begun   time.Time     // when the last read began
	at      time.Time     // when it ended
	took    time.Duration // how long that took
	broken  error         // the last read's
	users   int           // who are about to read it
	pages   map[*page]struct{}
}

// soon reports whether it is too early to read it anew, of one's own accord.
func (v *view) soon() bool {
	return time.Since(v.at) < max(v.key.keep(), slowness*v.took)
}

// keep is how long what was read is good enough.
func (k key) keep() time.Duration {
	if k.page == "latency" {
		return 10 * time.Second
	}
	return redrawEvery
}

// page is an open stream.
type page struct {
	changes chan string
	lost    bool // it could not keep up, and is to be sent everything
}

// use finds a view, and keeps it from being forgotten until it is left.
func (h *hub) use(k key) (v *view, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.views[k]
	if !ok {
		v = &view{key: k, pages: make(map[*page]struct{})}
		h.views[k] = v
	}
	v.users++
	return v, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		v.users--
		h.forget()
	}
}

// forget drops what nobody looks at. It is called with h.mu held.
func (h *hub) forget() {
	for k, v := range h.views {
		if v.users == 0 && len(v.pages) == 0 && !v.soon() {
			delete(h.views, k)
		}
	}
}

// changed says that what was read is not so any more: somebody has done something,
// and wants to see it.
func (h *hub) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acted = time.Now()
	for _, v := range h.views {
		v.at, v.current = time.Time{}, false
	}
}

// see reads a screen for somebody who opens a page, or takes what was read for
// others just now.
func (h *hub) see(ctx context.Context, k key) (screen, error) {
	v, leave := h.use(k)
	defer leave()
	return h.draw(ctx, v)
}

// draw reads a view, unless that was done just now, and tells its pages what
// changed. One caller reads for all that wait.
func (h *hub) draw(ctx context.Context, v *view) (screen, error) {
	v.read.Lock()
	defer v.read.Unlock()
	h.mu.Lock()
	if v.known && v.broken == nil && v.begun.After(h.acted) && time.Since(v.at) < max(redrawEvery, v.took) {
		defer h.mu.Unlock()
		return v.now, nil
	}
	v.current = true // what happens from here on, happens after the read
	h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return screen{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	begun := time.Now()
	s, err := h.load(ctx, v.key)

	h.mu.Lock()
	defer h.mu.Unlock()
	v.begun, v.at, v.took = begun, time.Now(), time.Since(begun)
	if err != nil {
		v.tell("stale", "", "", v.broken == nil)
		v.broken, v.current = err, false
		return screen{}, err
	}
	v.tell("fresh", "", "", v.broken != nil)
	v.broken = nil
	if v.known && v.now.version != s.version {
		v.tell("", s.version, s.since(v.now), true)
	}
	v.now, v.known = s, true
	return s, nil
}

// tell puts a message into the queues of the pages.
func (v *view) tell(event, id, data string, do bool) {
	if !do || event == "" && data == "" {
		return
	}
	text := message(event, id, data)
	for p := range v.pages {
		select {
		case p.changes <- text:
		default:
			p.lost = true
		}
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
func (h *hub) join(ctx context.Context, k key, at string) (*view, *page, error) {
	v, leave := h.use(k)
	defer leave()
	_, err := h.draw(ctx, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open >= h.most {
		return nil, nil, errCrowded
	}
	p := &page{changes: make(chan string, queued)}
	switch {
	case err != nil:
		p.changes <- message("stale", "", "")
	case v.now.version != at:
		p.changes <- message("", v.now.version, v.now.whole())
	}
	h.open++
	poke(h.came)
	v.pages[p] = struct{}{}
	return v, p, nil
}

func (h *hub) leave(v *view, p *page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(v.pages, p)
	if h.open--; h.open == 0 && h.gone != nil {
		h.gone()
	}
}

// caughtUp gives a page that could not keep up everything, instead of what was in
// its queue.
func (h *hub) caughtUp(v *view, p *page) (everything string, was bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !p.lost {
		return "", false
	}
	for len(p.changes) > 0 {
		<-p.changes
	}
	p.lost = false
	return message("", v.now.version, v.now.whole()), true
}

// concerns reports whether an event may change what is seen.
func (k key) concerns(e store.Event) bool {
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
