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

// heartbeat renews the lease of all claims of this process, and records their progress. It
// learns from the database which claims were lost, what is paused, and whether another
// worker's lease ran out; without an answer everything stays as it is. Its goroutine owns
// all fields.
type heartbeat struct {
	p        *process
	interval time.Duration
	timeout  time.Duration // of one heartbeat

	answered time.Time // when the last one that was answered was sent
	sent     time.Time // when the last one was sent
	err      error     // of the last one
	session  int64     // the session's key in the database

	skipped           int       // heartbeats in a row, this one included, that skipped the checks
	uncheckedSince    time.Time // since when the database takes heartbeats but does not check claims; zero for not
	reportedCheckErr  bool
	notListeningSince time.Time // since when no notifications arrive; zero while they do
}

// maxSkipped: up to seven heartbeats in a row skip the checks. A process without claims
// reads with every eighth which stages are paused, in case a notification was lost.
const maxSkipped = 8

// runHeartbeat sends heartbeats until ctx is done.
func (p *process) runHeartbeat(ctx context.Context) {
	h := &heartbeat{
		p: p, answered: time.Now(),
		interval: store.HeartbeatInterval(p.Lease), timeout: min(p.Lease/12, 3*time.Second),
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		checkNow := false
		select {
		case <-ctx.Done():
			return
		case <-p.checkClaims:
			checkNow = true
		case <-timer.C:
			timer.Reset(jitter(h.next()))
		}
		p.OnAlive("heartbeat")
		h.sendIfDue(ctx, checkNow)
	}
}

// maxTick is the longest tick.
const maxTick = time.Second

// tick is how often progress is recorded, and how often it is decided whether a heartbeat is due.
func (h *heartbeat) tick() time.Duration { return min(h.interval/2, maxTick) }

// currentInterval is the time between two heartbeats. Without notifications only heartbeats tell of cancelled claims and pauses, so
// they are not as rare as the lease allows.
func (h *heartbeat) currentInterval() time.Duration {
	if h.p.isListening() {
		return h.interval
	}
	return min(h.interval, 2*maxTick)
}

// next is the time to the next tick. It is short while the database does not know the
// session, because until then only the lease shows that this process died; and while the
// heartbeat waits for a lock, so that it is sent when the lock is released.
func (h *heartbeat) next() time.Duration {
	if key, _ := h.p.session(); errors.Is(h.err, store.ErrLocked) || key != 0 && h.session == 0 {
		return h.tick() / 4
	}
	return h.tick()
}

// sendIfDue sends a heartbeat if one is due, or there is something to send.
func (h *heartbeat) sendIfDue(ctx context.Context, checkNow bool) {
	claims, running, progressed := h.p.describe()
	key, held := h.p.session()
	checkNow = checkNow || !h.uncheckedSince.IsZero()
	if h.err == nil && !checkNow && len(progressed) == 0 && (!held || key == h.session) &&
		time.Since(h.sent) < h.currentInterval()-h.tick()*2/5 {
		return
	}
	h.sent = time.Now()
	h.skipped++
	skip := !checkNow && len(claims) == 0 && h.p.isListening() && h.skipped < maxSkipped
	if !skip {
		h.skipped = 0
	}
	var out engine.HeartbeatResult
	out, h.err = h.send(ctx, engine.HeartbeatRequest{
		Claims: claims, Running: running, Progressed: progressed, SkipChecks: skip,
	})
	if h.err != nil {
		h.failed(ctx)
		return
	}
	h.answered = h.sent
	if held {
		h.session = key
	}
	h.p.contact.heartbeatAnswered(out.Now, h.sent)
	h.p.queueFull.Store(out.QueueFull)
	h.revoke(out.LostClaims)
	h.p.setControls(controls{paused: out.Paused, drain: out.Draining})
	h.observeCheckErr(out.CheckErr)
	signal(h.p.workerExpired, out.WorkerExpired)
	signal(h.p.wrote, len(progressed) > 0)
	signal(h.p.notListening, h.mustPoll())
}

// failed cancels the attempts whose claims are lost, or may be before the next answer.
func (h *heartbeat) failed(ctx context.Context) {
	h.p.contact.failed()
	switch {
	case errors.Is(h.err, store.ErrWorkerUnknown):
		// The claims that the others have not expired yet are released.
		h.p.attempts.cancelAll(fmt.Errorf("%w: this worker was expired", ErrLeaseLost))
		within, cancel := context.WithTimeout(ctx, h.timeout)
		defer cancel()
		err := h.p.register(within)
		if err == nil {
			h.answered, h.session = time.Now(), 0
		} else if isOutdated(err) {
			h.p.refuse(err)
		}
	case IsPermanent(h.err):
		h.p.refuse(h.err)
	case errors.Is(h.err, store.ErrLocked):
		// The server works, and the lock on this worker's row, or on workers, keeps the
		// others from expiring it, too.
		h.answered = h.sent
	case time.Since(h.answered)+h.tick() > h.maxUnanswered():
		h.p.attempts.cancelAll(fmt.Errorf("%w: no heartbeat for %s", ErrLeaseLost, time.Since(h.answered).Round(time.Second)))
	}
}

// observeCheckErr reports, once, that the database takes heartbeats but does not check the
// claims, for longer than a lock on a table usually lasts. The claims are kept.
func (h *heartbeat) observeCheckErr(err error) {
	switch {
	case err == nil:
		h.uncheckedSince, h.reportedCheckErr = time.Time{}, false
	case h.uncheckedSince.IsZero():
		h.uncheckedSince = time.Now()
	case !h.reportedCheckErr && time.Since(h.uncheckedSince) > store.DisconnectGrace(h.p.Lease):
		h.reportedCheckErr = true
		h.p.observe(Event{Kind: ClaimsUnchecked, Err: err})
	}
}

// maxUnanswered is how long this process works without an answer. It must stop before other
// workers take its claims: they wait for the lease, or for the grace where its session has
// ended. While the server is down nobody takes claims, and when it returns the lease starts
// again.
func (h *heartbeat) maxUnanswered() time.Duration {
	if key, held := h.p.session(); key != 0 && !held && (h.err == nil || !isServerDown(h.err, h.p.isDirect())) {
		return store.DisconnectGrace(h.p.Lease) * 6 / 7
	}
	return h.p.Lease * 5 / 6
}

// mustPoll reports whether no notifications have arrived for a heartbeat's interval. They
// never do for a moment at the start, after which everything is claimed from anyway.
func (h *heartbeat) mustPoll() bool {
	switch {
	case h.p.isListening():
		h.notListeningSince = time.Time{}
	case h.notListeningSince.IsZero():
		h.notListeningSince = time.Now()
	default:
		return time.Since(h.notListeningSince) >= h.currentInterval()
	}
	return false
}

func (h *heartbeat) send(ctx context.Context, in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
	within := min(h.timeout, max(h.maxUnanswered()-time.Since(h.answered)-h.tick(), h.tick()/4))
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	key, held := h.p.session()
	if !held {
		key = 0
	}
	in.Worker, in.Session, in.Credit = h.p.worker.get(), key, h.p.contact.credit(h.p.Lease)
	return h.p.Backend.Heartbeat(ctx, in)
}

// revoke cancels the attempts whose claims are lost.
func (h *heartbeat) revoke(lost []engine.LostClaim) {
	for _, l := range lost {
		if a := h.p.attempts.get(l.Token); a != nil {
			a.cancel(fmt.Errorf("%w: %w", claimLostError(l.Cancelled), errRevoked))
		}
	}
}

// describe returns the claims of this process, the attempts that run, and those of them
// that made progress since the last call.
func (p *process) describe() (claims []engine.Claim, running, progressed []store.Running) {
	for _, a := range p.attempts.all() {
		claims = append(claims, a.claim)
		if r, progress, started := a.running(); started {
			running = append(running, r)
			if progress {
				progressed = append(progressed, r)
			}
		}
	}
	return claims, running, progressed
}

// session is the key of the lock that Wakes holds for this process, 0 for none, and
// whether it holds it now.
func (p *process) session() (key int64, held bool) {
	if p.listener == nil {
		return 0, false
	}
	return p.listener.Session()
}

// isListening reports whether notifications arrive.
func (p *process) isListening() bool {
	if p.Wakes == nil || p.queueFull.Load() {
		return false
	}
	return p.listener == nil || p.listener.Connected()
}

// isDirect reports whether connections are known to lead to the server itself, and not to
// a proxy that may be down while the server is not.
func (p *process) isDirect() bool {
	return p.listener != nil && p.listener.Direct()
}

// isServerDown reports whether err says, of every address tried, that the server is
// stopping or starting, or that nothing listens at its own address.
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
