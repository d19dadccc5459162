package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// The bounds of the histograms, in seconds. They are part of what the package
// promises: dashboards of several versions are to be read side by side.
var (
	wakeupBuckets   = []float64{.0005, .001, .0015, .002, .003, .004, .005, .0075, .01, .02, .05, .1, .25, .5, 1}
	waitBuckets     = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 600, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600}
	durationBuckets = []float64{.005, .01, .05, .1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600}
	speedBuckets    = []float64{.1, .25, .5, .75, 1, 1.5, 2, 3, 5, 8, 12, 20, 40, 80} // a ratio
)

// outcomes are the events that end a claim, with the value of the label outcome.
var outcomes = map[stages.Kind]string{
	stages.StageCompleted: "completed", stages.AttemptFailed: "failed", stages.StageDead: "dead",
	stages.ClaimReleased: "released", stages.ClaimRevoked: "revoked",
}

// stage has the series of one stage, so that an event does not look them up.
type stage struct {
	waited  prometheus.Observer
	retries prometheus.Counter
	missed  prometheus.Counter
	ended   map[stages.Kind]ending
	slots   int

	mu         sync.Mutex
	busy       map[store.ID]int // by task: the attempt in a slot
	used, free prometheus.Gauge
}

type ending struct {
	count prometheus.Counter
	took  prometheus.Observer
}

func (m *Metrics) newStages(o Options) map[string]*stage {
	waited := m.histogram("stage_queue_wait_seconds",
		"Time from when a stage could be claimed to the claim on which work began; 0 where it was claimed with the completion of what it needs.", waitBuckets, "stage")
	took := m.histogram("stage_duration_seconds",
		"Time that work on a stage took, by what became of it.", durationBuckets, "stage", "outcome")
	ended := m.counter("stage_attempts_total",
		"Claims of a stage that ended, by what became of them; released and revoked ones are no attempts, and may not have begun.", "stage", "outcome")
	retries := m.counter("retries_total",
		"Attempts that failed and are followed by another.", "stage")
	missed := m.counter("poll_fallback_claims_total",
		"Claims that only the sweep found, because nobody was woken for them.", "stage")
	slots := m.gauge("worker_slots",
		"Slots of this process, by whether they are in use.", "stage", "state")
	all := make(map[string]*stage)
	for _, name := range o.Graph.Stages() {
		s := &stage{
			waited: waited.WithLabelValues(name), retries: retries.WithLabelValues(name), missed: missed.WithLabelValues(name),
			ended: make(map[stages.Kind]ending), slots: o.Slots[name], busy: make(map[store.ID]int),
			used: slots.WithLabelValues(name, "busy"), free: slots.WithLabelValues(name, "free"),
		}
		for kind, outcome := range outcomes {
			s.ended[kind] = ending{ended.WithLabelValues(name, outcome), took.WithLabelValues(name, outcome)}
		}
		s.rest()
		all[name] = s
	}
	return all
}

// start notes that work on a task takes a slot.
func (s *stage) start(task store.ID, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[task] = attempt
	s.count()
}

// end notes what became of a claim, which may have waited for a slot in vain.
func (s *stage) end(e stages.Event) {
	s.mu.Lock()
	if attempt, began := s.busy[e.Task]; began && attempt == e.Attempt {
		delete(s.busy, e.Task)
		s.count()
	}
	s.mu.Unlock()
	end := s.ended[e.Kind]
	end.count.Inc()
	if e.Duration > 0 {
		end.took.Observe(e.Duration.Seconds())
	}
	if e.Kind == stages.AttemptFailed {
		s.retries.Inc()
	}
}

// rest notes that nothing is being worked on.
func (s *stage) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.busy)
	s.count()
}

func (s *stage) count() {
	s.used.Set(float64(len(s.busy)))
	s.free.Set(float64(max(s.slots-len(s.busy), 0)))
}
