package ui

import (
	"context"
	"errors"
	"time"
)

// reading is a read under way, for all who wait for it.
type viewRead struct {
	started time.Time
	done    chan struct{} // closed when there is what follows
	screen  screen
	err     error
}

// see reads a screen for somebody who opens a page, or takes what was read for
// others just now.
func (h *hub) read(ctx context.Context, k viewKey, who string) (screen, error) {
	v, _, leave := h.acquire(k, who)
	defer leave()
	return h.refresh(ctx, v)
}

// draw reads a view, unless that was done just now, and tells its pages what
// changed. One caller reads for all that wait, and what goes wrong then has gone wrong
// for all.
func (h *hub) refresh(ctx context.Context, v *view) (screen, error) {
	for {
		if err := ctx.Err(); err != nil {
			return screen{}, err
		}
		h.mu.Lock()
		if v.hasScreen && v.err == nil && v.readStarted.After(h.lastAction) && time.Since(v.readEnded) < max(redrawInterval, v.readTook) {
			defer h.mu.Unlock()
			return v.screen, nil
		}
		r := v.inFlight
		if r == nil {
			r = &viewRead{started: time.Now(), done: make(chan struct{}), err: errors.New("reading it came to no end")}
			v.inFlight = r
			v.upToDate = true // what happens from here on, happens after the read
			h.mu.Unlock()
			h.load1(ctx, v, r)
			return r.screen, r.err
		}
		h.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-r.done:
			if r.err != nil || h.isAfterLastAction(r) {
				return r.screen, r.err
			}
		}
	}
}

// since reports whether a read began after somebody did something last.
func (h *hub) isAfterLastAction(r *viewRead) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.started.After(h.lastAction)
}

// read reads a view. The read belongs to all who wait for it, so it does not end with
// the one who came first.
func (h *hub) load1(ctx context.Context, v *view, r *viewRead) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	defer h.store(v, r)
	r.screen, r.err = h.load(ctx, v.key)
}

// keep keeps what was read, and tells the pages.
func (h *hub) store(v *view, r *viewRead) {
	h.onRead(v.key, r.err)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(r.done)
	v.inFlight, v.readStarted, v.readEnded, v.readTook = nil, r.started, time.Now(), time.Since(r.started)
	if r.err != nil {
		if v.err == nil {
			v.notify("stale")
		}
		v.err, v.upToDate = r.err, false
		return
	}
	if v.err != nil {
		v.notify("fresh")
	}
	v.send(r.screen)
	v.screen, v.hasScreen, v.err, v.lastGood = r.screen, true, nil, r.started
}

// tell puts the name of something that has happened into the queues of the pages.
func (v *view) notify(event string) {
	text := message(event, "", "")
	for p := range v.subscribers {
		p.enqueue(text)
	}
}

// bring has the pages show a screen. Those that show the one before need what changed
// since; one that came while nothing could be read shows another.
func (v *view) send(s screen) {
	var changed, everything string
	for p := range v.subscribers {
		switch {
		case p.version == s.version:
			continue
		case v.hasScreen && p.version == v.screen.version:
			if changed == "" {
				changed = message("", s.version, s.changesFrom(v.screen))
			}
			p.enqueue(changed)
		default:
			if everything == "" {
				everything = message("", s.version, s.fullUpdate())
			}
			p.enqueue(everything)
		}
		p.version = s.version
	}
}
