package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const namespace = "cuelight"

// Options say what there is to tell of. Graph must be set.
type Options struct {
	// Graph is the pipeline's; its stages are the values of the label stage.
	// Events of other stages are not counted.
	Graph store.Graph

	// Slots is, by stage, how many tasks this process works on at once. Default:
	// none, as in a process that does not work on the pipeline.
	Slots map[string]int

	// Version is the program's.
	Version string

	// Pool is whose connections are counted. Default: nobody's.
	Pool interface{ Stat() *pgxpool.Stat }

	// Dirs are directories of which is told how much room is left on their disks.
	Dirs []string

	// WebhookTypes are the types of what is delivered to webhooks; all others are
	// counted as one. Default: those of the store's events.
	WebhookTypes []string

	// KeepEvents is for how long this process leaves events in the outbox. Default:
	// for ever.
	KeepEvents time.Duration

	// Database is asked for what all processes have in common. Default: that is
	// not told.
	Database *Database
}

// Metrics are those of one process. All methods may be called by many goroutines
// at once.
type Metrics struct {
	registry   *prometheus.Registry
	stages     map[string]*stage
	wakeup     prometheus.Observer
	speed      prometheus.Observer
	recovered  prometheus.Counter
	lost       prometheus.Counter
	listener   listener
	deliveries deliveries
	requests   requests
}

// New returns the Metrics of a process.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.gauge("build_info", "Always 1; the labels say which program this is.", "version", "goversion").
		WithLabelValues(o.Version, runtime.Version()).Set(1)
	m.stages = m.newStages(o)
	m.wakeup = m.histogram("wakeup_latency_seconds",
		"Time from when a stage could be claimed to its claim, where a slot was free, so that only the news was waited for.",
		wakeupBuckets).WithLabelValues()
	m.speed = m.histogram("ffmpeg_speed_ratio",
		"Media time per wall time, as ffmpeg reported it while it ran: below 1 is slower than playing.",
		speedBuckets).WithLabelValues()
	m.recovered = m.counter("attempts_expired_total",
		"Claims of workers that went away, freed by this process.").WithLabelValues()
	m.lost = m.counter("workers_lost_total",
		"Workers that this process found to have gone away.").WithLabelValues()
	m.listener = m.newListener()
	m.deliveries = m.newDeliveries(o.WebhookTypes)
	m.requests = m.newRequests()
	if o.KeepEvents > 0 {
		m.gauge("events_keep_seconds", "For how long events are kept, by this process's setting; not told where they are kept for ever.").
			WithLabelValues().Set(o.KeepEvents.Seconds())
	}
	if o.Pool != nil {
		m.registry.MustRegister(newPoolCollector(o.Pool.Stat))
	}
	if len(o.Dirs) > 0 {
		m.registry.MustRegister(newDiskCollector(o.Dirs))
	}
	if o.Database != nil {
		m.registry.MustRegister(newDatabaseCollector(o.Database))
	}
	return m
}

// scrapesAtOnce is how many scrapes are answered at once; others are told to come
// again.
const scrapesAtOnce = 8

// Handler answers a scrape, in whichever format of Prometheus it asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		DisableCompression:  true, // each writer of gzip keeps near a megabyte for some tens of kilobytes that go past
		MaxRequestsInFlight: scrapesAtOnce,
		EnableOpenMetrics:   true,
	})
}

// Observe is for stages.Runner. It takes less than a microsecond and never
// blocks.
func (m *Metrics) Observe(e stages.Event) {
	switch e.Kind {
	case stages.WorkerStarted, stages.WorkerStopped:
		for _, s := range m.stages {
			s.rest()
		}
		return
	case stages.AttemptsExpired:
		m.recovered.Add(float64(e.Count))
		return
	case stages.WorkerLost:
		m.lost.Inc()
		return
	}
	s := m.stages[e.Stage]
	if s == nil {
		return
	}
	switch e.Kind {
	case stages.StageStarted:
		s.start(e.Task, e.Attempt)
		s.waited.Observe(e.Waited.Seconds())
		if e.Woken {
			m.wakeup.Observe(e.Waited.Seconds())
		}
	case stages.StageProgress:
		if e.Progress.Speed > 0 {
			m.speed.Observe(e.Progress.Speed)
		}
	case stages.StageCompleted, stages.AttemptFailed, stages.StageDead, stages.ClaimReleased, stages.ClaimRevoked:
		s.end(e)
	case stages.WakeMissed:
		s.missed.Add(float64(e.Count))
	}
}

// The three kinds of series that count what happens.

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}
