package daemon

import (
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/stages"
)

// wakeLatency measures how long this process's latest claims waited that had a free
// slot, and so waited for the notification alone. Only the process that makes a claim
// knows that.
type wakeLatency struct {
	mu     sync.Mutex
	latest [1000]wakeSample
	n      int // claims seen so far
}

type wakeSample struct {
	at     time.Time
	waited time.Duration
}

func (w *wakeLatency) observe(e stages.Event) {
	if e.Kind != stages.StageStarted || !e.Woken {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest[w.n%len(w.latest)] = wakeSample{time.Now(), e.Waited}
	w.n++
}

// within returns the percentiles of the samples that are not older than age.
func (w *wakeLatency) within(age time.Duration) report.Percentiles {
	w.mu.Lock()
	var waited []time.Duration
	for _, s := range w.latest[:min(w.n, len(w.latest))] {
		if time.Since(s.at) <= age {
			waited = append(waited, s.waited)
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
