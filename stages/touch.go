package stages

import (
	"sync"
	"time"
)

// touch is since when the database has answered everything, to the dispatcher
// and to the heartbeat, and what its clock says.
type touch struct {
	mu    sync.Mutex
	since time.Time // zero: it does not answer
	clock time.Time // what the database's clock said …
	at    time.Time // … and when
}

// clockOff is how far the database's clock may be from where it should be.
const clockOff = 2 * time.Second

func (t *touch) lost() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Time{}
}

func (t *touch) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		t.since = time.Now()
	}
}

// heard takes in what the database's clock said in answer to a question. If it
// was changed, all the others have to beat anew before they are judged by it.
func (t *touch) heard(clock, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	off := time.Duration(0)
	if !t.clock.IsZero() {
		off = clock.Sub(t.clock) - asked.Sub(t.at)
	}
	if t.since.IsZero() || off < -clockOff || off > clockOff+time.Since(asked) {
		t.since = time.Now()
	}
	t.clock, t.at = clock, asked
}

// expected is what the database's clock should say now; zero for not known.
func (t *touch) expected() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clock.IsZero() {
		return time.Time{}
	}
	return t.clock.Add(time.Since(t.at))
}

// kept is for how long the database has answered.
func (t *touch) kept() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		return 0
	}
	return time.Since(t.since)
}
