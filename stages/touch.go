package stages

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// touch is when the database answered, to the dispatcher and to the heartbeat,
// and what its clock said. Where it did not answer here, the others may have
// been without it, too, so what they did not say meanwhile is not held against
// them.
type databaseContact struct {
	mu     sync.Mutex
	last   time.Time     // the last answer; zero before the first
	broken bool          // there was a failure since
	gaps   []gap         // between two answers with a failure in between; the latest is last
	clock  time.Time     // what the database's clock said …
	at     time.Time     // … and when it was asked
	took   time.Duration // … until it answered
}

type gap struct{ from, to time.Time } // from is zero for "always before"

// clockOff is how far the database's clock may be from where it should be.
const clockOff = 2 * time.Second

func (t *databaseContact) failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = true
}

func (t *databaseContact) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answer()
}

func (t *databaseContact) answer() {
	now := time.Now()
	if t.broken || t.last.IsZero() {
		t.gaps = append(t.gaps, gap{t.last, now})
	}
	t.broken, t.last = false, now
}

// heard takes in what the database's clock said in answer to a question. If it
// was changed, what it says of the others' silence means nothing any more.
func (t *databaseContact) heard(clock, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answer()
	if !t.clock.IsZero() {
		off := clock.Sub(t.clock) - asked.Sub(t.at)
		if off < -clockOff-t.took || off > clockOff+time.Since(asked) {
			t.gaps = append(t.gaps[:0], gap{time.Time{}, time.Now()})
		}
	}
	t.clock, t.at, t.took = clock, asked, time.Since(asked)
}

// expected is what the database's clock should say now; zero for not known.
func (t *databaseContact) expected() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clock.IsZero() {
		return time.Time{}
	}
	return t.clock.Add(time.Since(t.at))
}

// allowance is for others whose lease is the same; nil while nobody is to be
// judged.
func (t *databaseContact) allowance(lease time.Duration) *engine.OutageCredit {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.IsZero() || t.broken {
		return nil
	}
	lease = max(lease, store.DefaultLease)
	all, some := t.away(lease), t.away(store.Grace(lease))
	if some == forever {
		return nil
	}
	// What is older says nothing of anybody's silence now.
	t.gaps = slices.DeleteFunc(t.gaps, func(g gap) bool { return all < forever && time.Since(g.to) > lease+all })
	return &engine.OutageCredit{Grace: some, Lease: all}
}

const forever = time.Duration(math.MaxInt64)

// away is how long the database was out of reach in the latest time in which it
// was within reach for d.
func (t *databaseContact) away(d time.Duration) time.Duration {
	var sum time.Duration
	for _, g := range slices.Backward(t.gaps) {
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
