package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// listener has the metrics of the notification listener.
type listener struct {
	connected  prometheus.Gauge
	reconnects prometheus.Counter

	mu                        sync.Mutex
	isConnected, wasConnected bool
}

func (m *Metrics) newListener() *listener {
	return &listener{
		connected: m.gauge("listener_connected",
			"1 while this process receives notifications, 0 while only the sweep finds work.").WithLabelValues(),
		reconnects: m.counter("listener_reconnects_total",
			"Reconnections of the listener.").WithLabelValues(),
	}
}

// ObserveListener records that the listener has connected or disconnected. It fits
// notify.Options.OnChange.
func (m *Metrics) ObserveListener(connected bool, _ error) {
	l := m.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if connected && l.wasConnected && !l.isConnected {
		l.reconnects.Inc()
	}
	l.isConnected, l.wasConnected = connected, l.wasConnected || connected
	if connected {
		l.connected.Set(1)
	} else {
		l.connected.Set(0)
	}
}
