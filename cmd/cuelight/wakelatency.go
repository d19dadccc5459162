package main

import (
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/stages"
)

// wakeups are the latest claims of this process that waited for nothing but the news:
// a slot was free. They say how quickly work begins that nothing keeps from beginning;
// only the process that made a claim knows that of it.
type wakeups struct {
	mu     sync.Mutex
	latest [1000]wakeup
	n      int // claims seen so far
}

type wakeup struct {
	at     time.Time
	waited time.Duration
}

// observe takes in what happens.
func (w *wakeups) observe(e stages.Event) {
	if e.Kind != stages.StageStarted || !e.Woken {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest[w.n%len(w.latest)] = wakeup{time.Now(), e.Waited}
	w.n++
}

// within are the percentiles of those of the last stretch of time.
func (w *wakeups) within(stretch time.Duration) report.Percentiles {
	w.mu.Lock()
	var waited []time.Duration
	for _, one := range w.latest[:min(w.n, len(w.latest))] {
		if time.Since(one.at) <= stretch {
			waited = append(waited, one.waited)
		}
	}
	w.mu.Unlock()
	slices.Sort(waited)
	p := report.Percentiles{N: len(waited)}
	if p.N > 0 {
		at := func(percent int) time.Duration { return waited[(p.N-1)*percent/100] }
		p.P50, p.P95, p.P99 = at(50), at(95), at(99)
	}
	return p
}
