package ui

import (
	"context"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// view is what all pages with one key look at. All but the key is the hub's.
type view struct {
	key     key
	owner   string   // who looked at it first
	reading *reading // if it is being read
	now     screen
	known   bool          // now has something
	current bool          // nothing has happened since it was read
	begun   time.Time     // when the last read began
	at      time.Time     // when it ended
	seen    time.Time     // when the last one began that went well
	took    time.Duration // how long the last took
	broken  error         // what went wrong with it
	users   int           // who are about to read it
	pages   map[*page]struct{}
}

// slowFrom is how long a read takes that is slow.
const slowFrom = 500 * time.Millisecond

func (v *view) pace() pace {
	if v.took > slowFrom {
		return slow
	}
	return quick
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
	has     string // the version that it shows once it has all of changes
	lost    bool   // it could not keep up, and is to be sent everything
}

// put adds a message, if the page keeps up.
func (p *page) put(text string) {
	select {
	case p.changes <- text:
	default:
		p.lost = true
	}
}

// How many views are kept, of each viewer and in all: each is read on its own, and
// whoever opens ever more of them would have everybody wait.
const (
	viewsEach = 64
	viewsMost = 256
)

// use finds a view, and keeps it from being forgotten until it is left. Where there
// are too many it is one that is not kept.
func (h *hub) use(k key, who string) (v *view, kept bool, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.views[k]
	if !ok {
		v = &view{key: k, owner: who, pages: make(map[*page]struct{})}
		if !h.room(who) {
			return v, false, func() {}
		}
		h.views[k] = v
	}
	v.users++
	return v, true, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		v.users--
		h.forget()
	}
}

// room reports whether one more view can be kept. It is called with h.mu held.
func (h *hub) room(who string) bool {
	h.forget()
	own := 0
	for _, v := range h.views {
		if v.owner == who {
			own++
		}
	}
	return own < viewsEach && len(h.views) < viewsMost
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
func (h *hub) join(ctx context.Context, k key, who, at string) (*view, *page, error) {
	v, kept, leave := h.use(k, who)
	defer leave()
	h.mu.Lock()
	if !kept || h.open >= h.most {
		h.mu.Unlock()
		return nil, nil, errCrowded
	}
	h.open++
	h.mu.Unlock()
	_, err := h.draw(ctx, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		h.closed()
		return nil, nil, err
	}
	p := &page{changes: make(chan string, queued), has: at}
	switch {
	case v.broken != nil || !v.known: // which may have mended since err
		p.put(message("stale", "", ""))
	case v.now.version != at:
		p.put(message("", v.now.version, v.now.whole()))
		p.has = v.now.version
	}
	v.pages[p] = struct{}{}
	poke(h.came)
	return v, p, nil
}

func (h *hub) leave(v *view, p *page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(v.pages, p)
	h.closed()
}

// closed counts one page less. It is called with h.mu held.
func (h *hub) closed() {
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
	if v.known {
		everything, p.has = message("", v.now.version, v.now.whole()), v.now.version
	}
	if v.broken != nil {
		return everything + message("stale", "", ""), true
	}
	return everything + message("fresh", "", ""), true
}

// lateAfter is for how long a page that is to be read at once may show what there
// was.
const lateAfter = 20 * time.Second

// age is when what the pages of a view show was read, and whether it is older than
// it should be.
func (h *hub) age(v *view) (read time.Time, late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return v.seen, !v.seen.IsZero() && time.Since(v.seen) > lateAfter+slowness*v.took
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
