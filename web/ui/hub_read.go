package ui

import (
	"context"
	"errors"
	"time"
)

var errReadAborted = errors.New("the read was aborted")

// read returns the screen of a view to a page that is being opened. It may be one
// that was read for another page a moment ago.
func (h *hub) read(ctx context.Context, k viewKey, viewer string) (screen, error) {
	v, _, release := h.acquire(k, viewer)
	defer release()
	return h.refresh(ctx, v)
}

// refresh reads a view and wakes its streams, unless the view was read a moment ago. All
// callers that wait share the read and its error.
func (h *hub) refresh(ctx context.Context, v *view) (screen, error) {
	return v.reads.Get(ctx, func(ctx context.Context) (s screen, err error) {
		h.mu.Lock()
		v.upToDate = true // set before the read: a later event clears it
		v.readsInFlight++
		h.mu.Unlock()
		started := time.Now()
		err = errReadAborted
		defer func() { h.finishRead(v, started, s, err) }()
		return h.load(ctx, v.key)
	})
}

// finishRead stores the result of a read in its view and wakes the streams. It drops the
// result if a later read, after an action of a user, has ended before.
func (h *hub) finishRead(v *view, started time.Time, s screen, err error) {
	h.onRead(v.key, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	v.readsInFlight--
	if started.Before(v.readStarted) {
		return
	}
	v.readStarted, v.readEnded, v.readTook = started, time.Now(), time.Since(started)
	if v.err = err; err != nil {
		v.upToDate = false
	} else {
		v.setScreen(s)
		v.lastGood = started
	}
	close(v.changed)
	v.changed = make(chan struct{})
}
