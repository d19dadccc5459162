package main

import (
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// fault is a time in which something was broken by us.
type fault struct {
	kind   kind
	worker int // -1 where it is not about one
	from   time.Time
	to     time.Time  // zero: it is still broken
	tasks  []store.ID // that were locked
}

// during: it was so at some time between the two.
func (f fault) during(from, to time.Time) bool {
	return !f.from.After(to) && (f.to.IsZero() || !f.to.Before(from))
}

// faults are what was broken. The judge asks them what excuses what he sees.
type faults struct {
	mu  sync.Mutex
	all []*fault
}

// begin notes that something is broken from now on; mended says that it is not
// any more.
func (f *faults) begin(k kind, worker int, tasks ...store.ID) (mended func()) {
	one := &fault{kind: k, worker: worker, from: time.Now(), tasks: tasks}
	f.mu.Lock()
	f.all = append(f.all, one)
	f.mu.Unlock()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		one.to = time.Now()
	}
}

func (f *faults) list() []fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []fault
	for _, one := range f.all {
		all = append(all, *one)
	}
	return all
}
