package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// listener counts the connections of the listener.
type listener struct {
	connected  prometheus.Gauge
	reconnects prometheus.Counter
	state      *listenerState
}

type listenerState struct {
	sync.Mutex
	on, before bool
}

func (m *Metrics) newListener() listener {
	return listener{
		connected: m.gauge("listener_connected",
			"1 while this process hears notifications, 0 while only the sweep finds work.").WithLabelValues(),
		reconnects: m.counter("listener_reconnects_total",
			"How often the listener came to hear again.").WithLabelValues(),
		state: &listenerState{},
	}
}

// Listening is for notify.Options.OnChange: it notes that the listener has begun
// to hear, or ceased to.
func (m *Metrics) Listening(connected bool, _ error) {
	l := m.listener
	l.state.Lock()
	defer l.state.Unlock()
	if connected && l.state.before && !l.state.on {
		l.reconnects.Inc()
	}
	l.state.on, l.state.before = connected, l.state.before || connected
	if connected {
		l.connected.Set(1)
	} else {
		l.connected.Set(0)
	}
}
