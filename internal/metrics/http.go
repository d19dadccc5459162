package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requestBuckets are bounds in seconds. There are few, since each route has its own.
var requestBuckets = []float64{.005, .025, .1, .5, 2.5, 10, 60}

// requests are those over HTTP.
type requests struct {
	ended *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func (m *Metrics) newRequests() requests {
	return requests{
		ended: m.counter("http_requests_total",
			"Requests over HTTP that were answered, by the route and the class of the status, such as 2xx; streams of events when they end.", "route", "code"),
		took: m.histogram("http_request_duration_seconds",
			"Time that requests over HTTP took, with what was sent and received; streams of events are left out.", requestBuckets, "route"),
	}
}

// HTTPRequest counts a request when it is over. The route is the pattern that it
// matched, of which there are few; all that match none count as one. What was a
// stream took as long as somebody read it, which says nothing.
func (m *Metrics) HTTPRequest(route string, status int, took time.Duration, stream bool) {
	if route == "" {
		route = other
	}
	m.requests.ended.WithLabelValues(route, strconv.Itoa(status/100)+"xx").Inc()
	if !stream {
		m.requests.took.WithLabelValues(route).Observe(took.Seconds())
	}
}

// HTTPStreams has it told how many streams of events are open. It may be called
// once.
func (m *Metrics) HTTPStreams(open func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "http_streams", Help: "Streams of events that are open, those of the dashboard's pages among them.",
	}, func() float64 { return float64(open()) }))
}
