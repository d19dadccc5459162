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

// Options say what to export. Only Graph is required.
type Options struct {
	// Graph is the graph of the pipeline. Its stages are the values of the label
	// stage; events of other stages are ignored.
	Graph store.Graph

	// Slots is the number of slots of this process by stage. Default: none, for a
	// process that is no worker.
	Slots map[string]int

	// Version is the version of the program.
	Version string

	// Pool is the connection pool to export. Default: none.
	Pool interface{ Stat() *pgxpool.Stat }

	// Dirs are directories whose disks are exported.
	Dirs []string

	// WebhookTypes are the types of webhook events; all others count as "other".
	// Default: the event types of package store.
	WebhookTypes []string

	// KeepEvents is how long this process keeps events in the outbox. Default:
	// forever.
	KeepEvents time.Duration

	// Database has the metrics that all processes share. Default: they are not
	// exported.
	Database *Database
}

// Metrics are the metrics of one process. All methods may be called from several
// goroutines at once.
type Metrics struct {
	registry   *prometheus.Registry
	stages     map[string]*stage
	wakes      prometheus.Observer
	speed      prometheus.Observer
	expired    prometheus.Counter
	lost       prometheus.Counter
	listener   *listener
	deliveries deliveries
	requests   requests
	deleted    deleted

	sweepInterval prometheus.Gauge
}

// New returns the Metrics of a process.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.gauge("build_info", "Always 1; the labels identify the program.", "version", "goversion").
		WithLabelValues(o.Version, runtime.Version()).Set(1)
	m.stages = m.newStages(o)
	m.wakes = m.histogram("wake_latency_seconds",
		"Time from ready to the claim of a stage, where a slot was free: the delay of the notification.",
		wakeBuckets).WithLabelValues()
	m.speed = m.histogram("ffmpeg_speed_ratio",
		"Media time per wall time in the progress reports of ffmpeg; below 1 is slower than playback.",
		speedBuckets).WithLabelValues()
	m.expired = m.counter("attempts_expired_total",
		"Expired claims of lost workers, found by this process.").WithLabelValues()
	m.lost = m.counter("workers_lost_total",
		"Lost workers, found by this process.").WithLabelValues()
	m.sweepInterval = m.gauge("sweep_interval_seconds",
		"Time from the latest sweep to the next one, which depends on what sweeps find.").WithLabelValues()
	m.deleted = m.newDeleted()
	m.listener = m.newListener()
	m.deliveries = m.newDeliveries(o.WebhookTypes)
	m.requests = m.newRequests()
	if o.KeepEvents > 0 {
		m.gauge("events_keep_seconds",
			"Retention of events in the settings of this process; missing if events are kept forever.").
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

// maxScrapes limits concurrent scrapes; further ones get status 503.
const maxScrapes = 8

// Handler answers scrapes, in the format that the request asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		DisableCompression:  true, // a gzip writer keeps nearly a megabyte, for some tens of kilobytes of text
		MaxRequestsInFlight: maxScrapes,
		EnableOpenMetrics:   true,
	})
}

// Observe counts an event of a stages.Runner. It takes less than a microsecond and
// never blocks.
func (m *Metrics) Observe(e stages.Event) {
	switch e.Kind {
	case stages.WorkerStarted, stages.WorkerStopped:
		for _, s := range m.stages {
			s.clear()
		}
		return
	case stages.AttemptsExpired:
		m.expired.Add(float64(e.Count))
		return
	case stages.WorkerLost:
		m.lost.Inc()
		return
	case stages.SweepEnded:
		m.sweepInterval.Set(e.RetryIn.Seconds())
		return
	case stages.RowsPruned, stages.EventsPruned, stages.TaskUnpublished, stages.TaskPurged:
		m.deleted.observe(e)
		return
	}
	s := m.stages[e.Stage]
	if s == nil {
		return
	}
	switch e.Kind {
	case stages.StageStarted:
		s.start(e)
		s.waited.Observe(e.Waited.Seconds())
		if e.Woken {
			m.wakes.Observe(e.Waited.Seconds())
		}
	case stages.StageProgress:
		if e.Progress.Speed > 0 {
			m.speed.Observe(e.Progress.Speed)
		}
	case stages.StageDivided, stages.PartCompleted, stages.StageCompleted, stages.AttemptFailed, stages.StageDead,
		stages.ClaimReleased, stages.ClaimRevoked:
		s.end(e)
	case stages.WakeMissed:
		s.missed.Add(float64(e.Count))
	}
}

// These three register a metric.

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
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
	}, labels)
	m.registry.MustRegister(v)
	return v
}
