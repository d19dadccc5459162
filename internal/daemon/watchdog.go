package daemon

import (
	"slices"
	"sync"
	"time"
)

// stuckAfter is when a loop that has not reported is stuck. No loop waits that long for
// a database that does not answer.
const stuckAfter = 90 * time.Second

// watchdog knows when each of a daemon's loops last went round.
type watchdog struct {
	mu    sync.Mutex
	beats map[string]time.Time
}

// beat records that a loop goes round.
func (w *watchdog) beat(loop string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.beats == nil {
		w.beats = make(map[string]time.Time)
	}
	w.beats[loop] = time.Now()
}

// reset forgets all loops, because they have ended.
func (w *watchdog) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beats = nil
}

// stuck returns the loops that have not gone round for too long.
func (w *watchdog) stuck() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var loops []string
	for name, at := range w.beats {
		if time.Since(at) > stuckAfter {
			loops = append(loops, name)
		}
	}
	slices.Sort(loops)
	return loops
}
