package ui

import (
	"context"
	"time"
)

// viewRead is a read of a view that several callers wait for.
type viewRead struct {
	started time.Time
	done    chan struct{} // closed when screen and err are set
	screen  screen
	err     error
}

// read returns the screen of a view to a page that is being opened. It may be one
// that was read for another page a moment ago.
func (h *hub) read(ctx context.Context, k viewKey, viewer string) (screen, error) {
	v, _, release := h.acquire(k, viewer)
	defer release()
	return h.refresh(ctx, v)
}

// refresh reads a view and sends the changes to its streams, unless the view was read
// a moment ago. One caller reads for all that wait; all of them get its error.
func (h *hub) refresh(ctx context.Context, v *view) (screen, error) {
	for {
		if err := ctx.Err(); err != nil {
			return screen{}, err
		}
		h.mu.Lock()
		isRecent := time.Since(v.readEnded) < max(redrawInterval, v.readTook)
		if v.hasScreen && v.err == nil && isRecent && v.readStarted.After(h.lastAction) {
			defer h.mu.Unlock()
			return v.screen, nil
		}
		r := v.inFlight
		if r == nil {
			r = &viewRead{started: time.Now(), done: make(chan struct{}), err: errReadAborted}
			v.inFlight = r
			v.upToDate = true // set before the read: a later event clears it
			h.mu.Unlock()
			h.runRead(ctx, v, r)
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

// isAfterLastAction reports whether a read started after the last action of a user.
func (h *hub) isAfterLastAction(r *viewRead) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.started.After(h.lastAction)
}

// runRead reads a view. All waiting callers share the read, so it does not end when
// the first caller's context ends.
func (h *hub) runRead(ctx context.Context, v *view, r *viewRead) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	defer h.finishRead(v, r)
	r.screen, r.err = h.load(ctx, v.key)
}

// finishRead stores the result of a read in its view and sends it to the streams.
func (h *hub) finishRead(v *view, r *viewRead) {
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

// notify sends an event without data to the streams of a view.
func (v *view) notify(event string) {
	text := message(event, "", "")
	for s := range v.subscribers {
		s.enqueue(text)
	}
}

// send brings all streams to a new screen. A stream that has the previous screen gets
// the changes; any other, such as one opened during an outage, gets everything.
func (v *view) send(next screen) {
	var changes, full string
	for s := range v.subscribers {
		switch {
		case s.version == next.version:
			continue
		case v.hasScreen && s.version == v.screen.version:
			if changes == "" {
				changes = message("", next.version, next.changesFrom(v.screen))
			}
			s.enqueue(changes)
		default:
			if full == "" {
				full = message("", next.version, next.fullUpdate())
			}
			s.enqueue(full)
		}
		s.version = next.version
	}
}
