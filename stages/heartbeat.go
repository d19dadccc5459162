package stages

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// heartbeat tells the database that this process lives and how far its work
// is. It learns which of its claims are no longer its own, and whether another
// process went away; where the database does not say, everything stays as it is.
// There is one beat for all claims.
type heartbeat struct {
	*dispatcher
	every  time.Duration // between two beats
	within time.Duration // how long one may take
	last   time.Time     // when the last one that was answered was sent
	sent   time.Time
	err    error     // what became of the last one
	told   int64     // the session that others know of
	mute   time.Time // since when no news comes in; zero while it does

	skipped   int       // heartbeats in a row, this one included, that skipped the checks
	unchecked time.Time // since when only the sign of life is answered; zero while all is
	toldSo    bool      // of that
}

// beat returns when ctx is done.
func (d *dispatcher) runHeartbeat(ctx context.Context) {
	h := &heartbeat{
		dispatcher: d, last: time.Now(),
		every: min(d.Lease/18, 2*time.Second), within: min(d.Lease/12, 3*time.Second),
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		recall := false
		select {
		case <-ctx.Done():
			return
		case <-d.recall:
			recall = true
		case <-timer.C:
			timer.Reset(jitter(h.next()))
		}
		d.Heartbeat("heartbeat")
		h.beat(ctx, recall)
	}
}

// maxSkipped: up to seven heartbeats in a row go without checks. A process with nothing
// to do reads at every eighth which stages are paused, in case a notification was lost.
const maxSkipped = 8

// tick is how often progress is written down, more or less a fifth; every
// second one is a beat in any case.
func (h *heartbeat) tick() time.Duration { return h.every / 2 }

// next is when to look again: soon, while the others do not know of a session
// that will be there in a moment, since without it only the lease shows a death; and
// at once, where the heartbeat waits for a lock, so that it is there when that ends.
func (h *heartbeat) next() time.Duration {
	if errors.Is(h.err, store.ErrLocked) {
		return h.tick() / 4
	}
	if key, _ := h.session(); key != 0 && h.told == 0 {
		return h.tick() / 4
	}
	return h.tick()
}

func (h *heartbeat) beat(ctx context.Context, recall bool) {
	claims, running, moved := h.describe()
	key, held := h.session()
	recall = recall || !h.unchecked.IsZero()
	if h.err == nil && !recall && len(moved) == 0 && (!held || key == h.told) && time.Since(h.sent) < h.every*4/5 {
		return
	}
	h.sent = time.Now()
	h.skipped++
	skip := !recall && len(claims) == 0 && h.isListening() && h.skipped < maxSkipped
	if !skip {
		h.skipped = 0
	}
	out, err := h.send(ctx, engine.HeartbeatRequest{Claims: claims, Running: running, Progressed: moved, SkipChecks: skip})
	h.err = err
	switch {
	case err == nil:
		h.last = h.sent
		if held {
			h.told = key
		}
		h.contact.heard(out.Now, h.sent)
		h.revoke(out.LostClaims)
		h.setControls(controls{paused: out.Paused, drain: out.Draining})
		h.noteUnchecked(out.Unchecked)
		signal(h.workerGone, out.WorkerExpired)
		signal(h.wrote, len(moved) > 0)
		signal(h.notListening, h.withoutNews())
		return
	case errors.Is(err, store.ErrWorkerUnknown):
		// Given back where nobody has freed them yet.
		h.live.cancelAll(fmt.Errorf("%w: this process was given up", ErrLeaseLost))
		if h.registerWithin(ctx, h.within) == nil {
			h.last, h.told = time.Now(), 0
		}
	case errors.Is(err, store.ErrLocked):
		// The server is there, and whoever has locked this process's row, or all of
		// workers, keeps the others from giving it up as well.
		h.last = h.sent
	case time.Since(h.last)+h.tick() > h.patience():
		h.live.cancelAll(fmt.Errorf("%w: no heartbeat for %s", ErrLeaseLost, time.Since(h.last).Round(time.Second)))
	}
	h.contact.failed()
}

// noteUnchecked tells, once, that the database takes the signs of life and does not
// say what became of the claims: they are kept. A lock on a table comes and goes.
func (h *heartbeat) noteUnchecked(err error) {
	switch {
	case err == nil:
		h.unchecked, h.toldSo = time.Time{}, false
	case h.unchecked.IsZero():
		h.unchecked = time.Now()
	case !h.toldSo && time.Since(h.unchecked) > store.Grace(h.Lease):
		h.toldSo = true
		h.Observe(Event{Kind: ClaimsUnchecked, Worker: h.workerID(), Err: err})
	}
}

// patience is how long this process may be without an answer before it stops
// its work, which must be before others take it: they wait for the whole lease,
// but for those whose sessions have ended only for the grace. A server that is
// not there at all takes nothing away; having come back, it starts the others'
// patience anew.
func (h *heartbeat) patience() time.Duration {
	if key, held := h.session(); key != 0 && !held && (h.err == nil || !isServerDown(h.err, h.isDirect())) {
		return store.Grace(h.Lease) * 6 / 7
	}
	return h.Lease * 5 / 6
}

// withoutNews reports whether none has come in for some time. For a moment there
// is none at every start, and after that everything is looked at in any case.
func (h *heartbeat) withoutNews() bool {
	switch {
	case h.isListening():
		h.mute = time.Time{}
	case h.mute.IsZero():
		h.mute = time.Now()
	default:
		return time.Since(h.mute) >= h.every
	}
	return false
}

func (h *heartbeat) send(ctx context.Context, in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
	within := min(h.within, max(h.patience()-time.Since(h.last)-h.tick(), h.tick()/4))
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	key, held := h.session()
	if !held {
		key = 0
	}
	in.Worker, in.Session, in.Credit = h.workerID(), key, h.contact.allowance(h.Lease)
	return h.Backend.Heartbeat(ctx, in)
}

// revoke stops the work on claims that are somebody else's now, or nobody's.
func (h *heartbeat) revoke(lost []engine.LostClaim) {
	for _, l := range lost {
		if a := h.live.get(l.Token); a != nil {
			a.cancel(fmt.Errorf("%w: %w", lostFor(l.Cancelled), errRevoked))
		}
	}
}

func (d *dispatcher) registerWithin(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return d.registerWorker(ctx)
}

// describe lists what is being worked on, and what of it moved.
func (d *dispatcher) describe() (claims []engine.Claim, running, moved []store.Running) {
	for _, a := range d.live.all() {
		claims = append(claims, a.claim)
		if r, m, begun := a.running(); begun {
			running = append(running, r)
			if m {
				moved = append(moved, r)
			}
		}
	}
	return claims, running, moved
}

// session is the key of the lock that Wakes hold for this process, 0 for none,
// and whether they hold it now.
func (d *dispatcher) session() (key int64, held bool) {
	if s, ok := d.Wakes.(interface{ Session() (int64, bool) }); ok {
		return s.Session()
	}
	return 0, false
}

// hears reports whether news comes in at all.
func (d *dispatcher) isListening() bool {
	if d.Wakes == nil {
		return false
	}
	c, ok := d.Wakes.(interface{ Connected() bool })
	return !ok || c.Connected()
}

// poke leaves word for the dispatcher.
func signal(c chan<- struct{}, when bool) {
	if !when {
		return
	}
	select {
	case c <- struct{}{}:
	default:
	}
}

// direct reports whether the connections are known to lead to the server itself,
// and not to something in front of it that may be away while the server is not.
func (d *dispatcher) isDirect() bool {
	w, ok := d.Wakes.(interface{ Direct() bool })
	return ok && w.Direct()
}

// absent reports whether err says, of every address that was tried, that the
// server is not there: it is stopping or starting, or nobody listens where it
// should itself.
func isServerDown(err error, direct bool) bool {
	if pg, ok := err.(*pgconn.PgError); ok {
		return pg.Code == "57P02" || pg.Code == "57P03"
	}
	if errno, ok := err.(syscall.Errno); ok {
		return direct && (errno == syscall.ECONNREFUSED || errno == syscall.ENOENT)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return isServerDown(e.Unwrap(), direct)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if !isServerDown(one, direct) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	}
	return false
}
