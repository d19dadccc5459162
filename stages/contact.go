package stages

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// databaseContact records when the database answered the dispatcher and the heartbeat, and
// its clock. While it did not answer here, it may not have answered other workers either,
// so their missed heartbeats in that time do not count.
type databaseContact struct {
	mu     sync.Mutex
	last   time.Time     // the last answer; zero before the first
	broken bool          // there was a failure since
	gaps   []gap         // between two answers with a failure in between, the latest last
	clock  time.Time     // the database's clock in the latest heartbeat
	sent   time.Time     // when that heartbeat was sent
	took   time.Duration // how long its answer took
}

// gap is a time without answers. from is zero for a gap that started before all answers.
type gap struct{ from, to time.Time }

// maxClockError is how far the database's clock may be from where it is expected.
const maxClockError = 2 * time.Second

func (c *databaseContact) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
}

func (c *databaseContact) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer()
}

// hasAnsweredWithin reports whether the last request was answered, at most so long ago.
func (c *databaseContact) hasAnsweredWithin(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.broken && time.Since(c.last) <= d
}

func (c *databaseContact) answer() {
	now := time.Now()
	if c.broken || c.last.IsZero() {
		c.gaps = append(c.gaps, gap{c.last, now})
	}
	c.broken, c.last = false, now
}

// heartbeatAnswered records the database's clock in the answer to a heartbeat. If the
// clock was changed, the age of other workers' heartbeats means nothing any more.
func (c *databaseContact) heartbeatAnswered(clock, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer()
	if !c.clock.IsZero() {
		off := clock.Sub(c.clock) - sent.Sub(c.sent)
		if off < -maxClockError-c.took || off > maxClockError+time.Since(sent) {
			c.gaps = append(c.gaps[:0], gap{time.Time{}, time.Now()})
		}
	}
	c.clock, c.sent, c.took = clock, sent, time.Since(sent)
}

// expectedClock is what the database's clock should say now; zero for not known.
func (c *databaseContact) expectedClock() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clock.IsZero() {
		return time.Time{}
	}
	return c.clock.Add(time.Since(c.sent))
}

// credit is the outage credit of workers with the same lease; nil while none may expire.
func (c *databaseContact) credit(lease time.Duration) *engine.OutageCredit {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() || c.broken {
		return nil
	}
	lease = max(lease, store.DefaultLease)
	leaseCredit, graceCredit := c.outageWithin(lease), c.outageWithin(store.DisconnectGrace(lease))
	if graceCredit == forever {
		return nil
	}
	// Older gaps do not matter for any lease.
	c.gaps = slices.DeleteFunc(c.gaps, func(g gap) bool { return leaseCredit < forever && time.Since(g.to) > lease+leaseCredit })
	return &engine.OutageCredit{DisconnectGrace: graceCredit, Lease: leaseCredit}
}

const forever = time.Duration(math.MaxInt64)

// outageWithin is how long the database did not answer within the latest time in which it
// answered for d.
func (c *databaseContact) outageWithin(d time.Duration) time.Duration {
	var sum time.Duration
	for _, g := range slices.Backward(c.gaps) {
		if time.Since(g.to) > d+sum {
			break
		}
		if g.from.IsZero() {
			return forever
		}
		sum += g.to.Sub(g.from)
	}
	return sum
}
