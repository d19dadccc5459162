package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// The bounds of the histograms, in seconds. They do not change between versions, so
// that dashboards can compare versions.
var (
	wakeBuckets = []float64{.0005, .001, .0015, .002, .003, .004, .005, .0075, .01, .02, .05, .1, .25, .5, 1}
	waitBuckets = []float64{
		.001, .005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 600, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600,
	}
	durationBuckets = []float64{
		.005, .01, .05, .1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600,
	}
	speedBuckets = []float64{.1, .25, .5, .75, 1, 1.5, 2, 3, 5, 8, 12, 20, 40, 80} // a ratio
)

// outcomes are the events that end a claim, with the value of the label outcome.
var outcomes = map[stages.Kind]string{
	stages.StageDivided: "divided", stages.PartCompleted: "part_completed",
	stages.StageCompleted: "completed", stages.AttemptFailed: "failed", stages.StageDead: "dead",
	stages.ClaimReleased: "released", stages.ClaimRevoked: "revoked",
}

// stage has the series of one stage, so that events need no lookup of labels.
type stage struct {
	waited  prometheus.Observer
	retries prometheus.Counter
	missed  prometheus.Counter
	ended   map[stages.Kind]outcomeSeries
	slots   int

	mu         sync.Mutex
	busy       map[slotKey]int // the attempt in a slot
	used, free prometheus.Gauge
}

// slotKey is what occupies a slot.
type slotKey struct {
	task store.ID
	part int
}

// outcomeSeries are the series of one outcome.
type outcomeSeries struct {
	count prometheus.Counter
	took  prometheus.Observer
}

func (m *Metrics) newStages(o Options) map[string]*stage {
	waited := m.histogram("stage_queue_wait_seconds",
		"Time from ready to the claim whose work started; 0 if it was claimed with the completion of the stage before it.",
		waitBuckets, "stage")
	took := m.histogram("stage_duration_seconds",
		"Duration of work on a stage by outcome.", durationBuckets, "stage", "outcome")
	ended := m.counter("stage_attempts_total",
		"Ended claims of a stage by outcome; released and revoked ones are not attempts, and may not have started.",
		"stage", "outcome")
	retries := m.counter("retries_total",
		"Failed attempts with another one to follow.", "stage")
	missed := m.counter("sweep_claims_total",
		"Claims that the sweep found without a notification.", "stage")
	slots := m.gauge("worker_slots",
		"Slots of this process by state: busy or free.", "stage", "state")
	all := make(map[string]*stage)
	for _, name := range o.Graph.Stages() {
		s := &stage{
			waited: waited.WithLabelValues(name), retries: retries.WithLabelValues(name), missed: missed.WithLabelValues(name),
			ended: make(map[stages.Kind]outcomeSeries), slots: o.Slots[name], busy: make(map[slotKey]int),
			used: slots.WithLabelValues(name, "busy"), free: slots.WithLabelValues(name, "free"),
		}
		for kind, outcome := range outcomes {
			s.ended[kind] = outcomeSeries{ended.WithLabelValues(name, outcome), took.WithLabelValues(name, outcome)}
		}
		s.clear()
		all[name] = s
	}
	return all
}

// start records that an attempt occupies a slot.
func (s *stage) start(e stages.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[slotKey{e.Task, e.Part}] = e.Attempt
	s.setSlots()
}

// end records the outcome of a claim, which may never have had a slot.
func (s *stage) end(e stages.Event) {
	s.mu.Lock()
	key := slotKey{e.Task, e.Part}
	if attempt, started := s.busy[key]; started && attempt == e.Attempt {
		delete(s.busy, key)
		s.setSlots()
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

// clear records that all slots are free.
func (s *stage) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.busy)
	s.setSlots()
}

// setSlots updates the gauges. The caller holds the mutex.
func (s *stage) setSlots() {
	s.used.Set(float64(len(s.busy)))
	s.free.Set(float64(max(s.slots-len(s.busy), 0)))
}
