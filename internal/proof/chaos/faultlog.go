package main

import (
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// fault is a period in which something was broken.
type fault struct {
	kind   faultKind
	worker int // or noWorker
	from   time.Time
	to     time.Time  // zero: it is still broken
	tasks  []store.ID // that were locked
}

// overlaps reports whether the fault was present at some time between the two.
func (f fault) overlaps(from, to time.Time) bool {
	return !f.from.After(to) && (f.to.IsZero() || !f.to.Before(from))
}

// is reports whether the fault is of one of the kinds.
func (f fault) is(kinds ...faultKind) bool { return slices.Contains(kinds, f.kind) }

// faultLog records the faults. The rules ask it what excuses their findings.
type faultLog struct {
	mu     sync.Mutex
	faults []*fault
}

// record notes that a fault begins now. The function that it returns notes its end.
func (l *faultLog) record(kind faultKind, worker int, tasks ...store.ID) (end func()) {
	f := &fault{kind: kind, worker: worker, from: time.Now(), tasks: tasks}
	l.mu.Lock()
	l.faults = append(l.faults, f)
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.to = time.Now()
	}
}

func (l *faultLog) list() []fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []fault
	for _, f := range l.faults {
		all = append(all, *f)
	}
	return all
}
