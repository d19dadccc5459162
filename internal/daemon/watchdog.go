package daemon

import (
	"slices"
	"sync"
	"time"
)

// stuckAfter is when a loop that has not reported is stuck. No loop waits that long for
// a database that does not answer.
const stuckAfter = 90 * time.Second

// watchdog knows when each of a daemon's loops last completed an iteration.
type watchdog struct {
	mu            sync.Mutex
	lastIteration map[string]time.Time
}

// recordIteration records that a loop has completed an iteration.
func (w *watchdog) recordIteration(loop string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lastIteration == nil {
		w.lastIteration = make(map[string]time.Time)
	}
	w.lastIteration[loop] = time.Now()
}

// reset forgets all loops, because they have ended.
func (w *watchdog) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastIteration = nil
}

// stuck returns the loops that have not completed an iteration for too long.
func (w *watchdog) stuck() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var loops []string
	for name, at := range w.lastIteration {
		if time.Since(at) > stuckAfter {
			loops = append(loops, name)
		}
	}
	slices.Sort(loops)
	return loops
}
