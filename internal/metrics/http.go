package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requestBuckets are bounds in seconds. They are few, because each route has its own.
var requestBuckets = []float64{.005, .025, .1, .5, 2.5, 10, 60}

// requests are the metrics of HTTP requests.
type requests struct {
	ended *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func (m *Metrics) newRequests() requests {
	return requests{
		ended: m.counter("http_requests_total",
			"Answered HTTP requests by route and class of status, such as 2xx; event streams count when they end.",
			"route", "code"),
		took: m.histogram("http_request_duration_seconds",
			"Duration of HTTP requests including their bodies, without event streams.", requestBuckets, "route"),
	}
}

// ObserveHTTPRequest counts a request at its end. The route is the matched pattern; requests
// without one count as other. The duration of a stream is not recorded, because it
// depends on the client.
func (m *Metrics) ObserveHTTPRequest(route string, status int, took time.Duration, stream bool) {
	if route == "" {
		route = other
	}
	m.requests.ended.WithLabelValues(route, strconv.Itoa(status/100)+"xx").Inc()
	if !stream {
		m.requests.took.WithLabelValues(route).Observe(took.Seconds())
	}
}

// ExportHTTPStreams exports the number of open event streams. Call it once at most.
func (m *Metrics) ExportHTTPStreams(open func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "http_streams", Help: "Open event streams, including those of dashboard pages.",
	}, func() float64 { return float64(open()) }))
}

// ExportStandby exports how far the standby that clients read from is behind, and whether it is used. Call it once at
// most.
func (m *Metrics) ExportStandby(status func() (lag time.Duration, used bool)) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "standby_lag_seconds", Help: "How far the standby that clients read from is behind.",
		}, func() float64 { lag, _ := status(); return lag.Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "standby_used",
			Help: "1 if clients read from the standby, 0 if they read from the primary although there is one.",
		}, func() float64 {
			if _, used := status(); used {
				return 1
			}
			return 0
		}))
}
