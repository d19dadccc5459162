package remote

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"time"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// clientWakes is the waiting request as the Listener of a Runner.
type clientWakes struct{ *Client }

func (w clientWakes) C() <-chan struct{} { return w.wakes }

func (w clientWakes) Take() []notify.Wake {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wakes []notify.Wake
	for _, channel := range slices.Sorted(maps.Keys(w.notified)) {
		wakes = append(wakes, notify.Wake{Channel: channel, Payloads: []string{""}})
	}
	clear(w.notified)
	return wakes
}

// Connected reports whether a request waits, so that the coordinator can bring claims.
func (w clientWakes) Connected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waits
}

// Session returns whether the connection of the waiting request is open, as far as is known: its end
// shows the coordinator that this process died. Behind a proxy it shows nothing, and key is 0: then
// nobody takes this worker's claims before its lease.
func (w clientWakes) Session() (key int64, held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxied {
		return 0, false
	}
	return 1, w.waits || w.answered
}

// Direct reports whether connections lead to the coordinator itself, so that a refused one means
// that it is down and has not seen them end.
func (w clientWakes) Direct() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.direct
}

// retryDelay is the longest pause between two tries to reach the coordinator.
const retryDelay = 2 * time.Second

// Run keeps a request waiting at the coordinator, until ctx is done. It returns an error if the
// coordinator refuses this worker.
func (w clientWakes) Run(ctx context.Context) error {
	delay, wait := 50*time.Millisecond, maxWait
	for ctx.Err() == nil {
		err := w.waitOnce(ctx, wait)
		_, isAnswer := errors.AsType[*responseError](err)
		w.mu.Lock()
		w.waits, w.answered = err == nil && ctx.Err() == nil, isAnswer
		w.mu.Unlock()
		switch {
		case err == nil:
			if wait > 0 {
				delay = 50 * time.Millisecond
			}
			wait = maxWait
			continue
		case errors.Is(err, ErrRefused):
			w.notify(w.o.Graph.ControlChannel()) // a heartbeat finds it out for the attempts
			return refusedForGood(err)
		}
		wait = 0 // the answer comes at once, and shows the contact
		w.sleep(ctx, time.Duration(float64(delay)*(0.8+0.4*rand.Float64())))
		delay = min(2*delay, retryDelay)
	}
	return nil
}

// Check makes Run try again at once: the coordinator has answered another request.
func (w clientWakes) Check() { signal(w.reachable) }

func (w clientWakes) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.reachable:
	case <-ctx.Done():
	}
}

// waitOnce sends one request that waits, and handles its answer.
func (w clientWakes) waitOnce(ctx context.Context, wait time.Duration) error {
	in := w.newWaiting(wait)
	if in.Worker.IsZero() {
		select { // until the worker is registered
		case <-w.registered:
		case <-ctx.Done():
		}
		return nil
	}
	trace := &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { w.setWaits(i.Err == nil) }}
	var out exchangeResponse
	err := w.call(httptrace.WithClientTrace(ctx, trace), http.MethodPost, "/exchange", in, &out)
	w.mu.Lock()
	var claims []engine.Claim
	if err == nil {
		claims, err = w.receive(in.Worker, out.Claims)
	}
	w.ended = nil
	w.granted = append(w.granted, claims...)
	for _, claim := range claims {
		w.free[w.stages[claim.Stage]]--
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	w.setControls(out.Control)
	for _, claim := range claims {
		w.notify(w.o.Graph.Channel(w.stages[claim.Stage]))
	}
	return nil
}

// newWaiting returns a request with the slots that are free after the last exchange. It waits
// for an exchange in progress, which changes them.
func (w clientWakes) newWaiting(wait time.Duration) exchangeRequest {
	w.exchanging.Lock()
	defer w.exchanging.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = make(map[store.ID]bool)
	in := w.newExchange(maps.Clone(w.free))
	in.Wait = wait.Seconds()
	return in
}

func (w clientWakes) setWaits(waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = waits
}
