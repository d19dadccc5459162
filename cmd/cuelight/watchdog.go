package main

import (
	"slices"
	"sync"
	"time"
)

// stuckAfter is when a loop that does not go round any more is stuck. It is
// more than any of them may wait for a database that does not answer.
const stuckAfter = 90 * time.Second

// pulse knows when each of the loops that a daemon lives by last went round.
type pulse struct {
	mu    sync.Mutex
	loops map[string]time.Time
}

func (p *pulse) beat(loop string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loops == nil {
		p.loops = make(map[string]time.Time)
	}
	p.loops[loop] = time.Now()
}

// rest forgets all loops: they have ended.
func (p *pulse) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loops = nil
}

// stuck names the loops that should have gone round and did not.
func (p *pulse) stuck() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for name, at := range p.loops {
		if time.Since(at) > stuckAfter {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
