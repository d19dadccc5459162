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

// refresh reads a view and wakes its streams, unless the view was read a moment ago.
// One caller reads for all that wait; all of them get its error.
func (h *hub) refresh(ctx context.Context, v *view) (screen, error) {
	for {
		if err := ctx.Err(); err != nil {
			return screen{}, err
		}
		h.mu.Lock()
		isRecent := time.Since(v.readEnded) < max(redrawInterval, v.readTook)
		if v.screen != nil && v.err == nil && isRecent && v.readStarted.After(h.lastAction) {
			defer h.mu.Unlock()
			return *v.screen, nil
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

// finishRead stores the result of a read in its view and wakes the streams.
func (h *hub) finishRead(v *view, r *viewRead) {
	h.onRead(v.key, r.err)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(r.done)
	v.inFlight, v.readStarted, v.readEnded, v.readTook = nil, r.started, time.Now(), time.Since(r.started)
	if v.err = r.err; r.err != nil {
		v.upToDate = false
	} else {
		v.setScreen(r.screen)
		v.lastGood = r.started
	}
	close(v.changed)
	v.changed = make(chan struct{})
}
