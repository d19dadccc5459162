package ui

import (
	"context"
	"errors"
	"time"
)

// reading is a read under way, for all who wait for it.
type reading struct {
	begun time.Time
	done  chan struct{} // closed when there is what follows
	s     screen
	err   error
}

// see reads a screen for somebody who opens a page, or takes what was read for
// others just now.
func (h *hub) see(ctx context.Context, k key, who string) (screen, error) {
	v, _, leave := h.use(k, who)
	defer leave()
	return h.draw(ctx, v)
}

// draw reads a view, unless that was done just now, and tells its pages what
// changed. One caller reads for all that wait, and what goes wrong then has gone wrong
// for all.
func (h *hub) draw(ctx context.Context, v *view) (screen, error) {
	for {
		if err := ctx.Err(); err != nil {
			return screen{}, err
		}
		h.mu.Lock()
		if v.known && v.broken == nil && v.begun.After(h.acted) && time.Since(v.at) < max(redrawEvery, v.took) {
			defer h.mu.Unlock()
			return v.now, nil
		}
		r := v.reading
		if r == nil {
			r = &reading{begun: time.Now(), done: make(chan struct{}), err: errors.New("reading it came to no end")}
			v.reading = r
			v.current = true // what happens from here on, happens after the read
			h.mu.Unlock()
			h.read(ctx, v, r)
			return r.s, r.err
		}
		h.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-r.done:
			if r.err != nil || h.since(r) {
				return r.s, r.err
			}
		}
	}
}

// since reports whether a read began after somebody did something last.
func (h *hub) since(r *reading) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.begun.After(h.acted)
}

// read reads a view. The read belongs to all who wait for it, so it does not end with
// the one who came first.
func (h *hub) read(ctx context.Context, v *view, r *reading) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	defer h.keep(v, r)
	r.s, r.err = h.load(ctx, v.key)
}

// keep keeps what was read, and tells the pages.
func (h *hub) keep(v *view, r *reading) {
	h.told(v.key, r.err)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(r.done)
	v.reading, v.begun, v.at, v.took = nil, r.begun, time.Now(), time.Since(r.begun)
	if r.err != nil {
		if v.broken == nil {
			v.tell("stale")
		}
		v.broken, v.current = r.err, false
		return
	}
	if v.broken != nil {
		v.tell("fresh")
	}
	v.bring(r.s)
	v.now, v.known, v.broken, v.seen = r.s, true, nil, r.begun
}

// tell puts the name of something that has happened into the queues of the pages.
func (v *view) tell(event string) {
	text := message(event, "", "")
	for p := range v.pages {
		p.put(text)
	}
}

// bring has the pages show a screen. Those that show the one before need what changed
// since; one that came while nothing could be read shows another.
func (v *view) bring(s screen) {
	var changed, everything string
	for p := range v.pages {
		switch {
		case p.has == s.version:
			continue
		case v.known && p.has == v.now.version:
			if changed == "" {
				changed = message("", s.version, s.since(v.now))
			}
			p.put(changed)
		default:
			if everything == "" {
				everything = message("", s.version, s.whole())
			}
			p.put(everything)
		}
		p.has = s.version
	}
}
