package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cuelight/cuelight/store"
)

// webhookOutcomes are the outcomes of a delivery attempt in package webhook.
func webhookOutcomes() []string {
	return []string{"delivered", "failed", "dead", "gone", "suppressed", "missed"}
}

// other replaces unknown label values, so that their number stays bounded.
const other = "other"

// deliveries are the counters of delivery attempts.
type deliveries map[string]map[string]prometheus.Counter // by type and outcome

func (m *Metrics) newDeliveries(types []string) deliveries {
	v := m.counter("webhook_deliveries_total",
		"Delivery attempts by outcome: delivered; failed and to be retried; dead; gone, which disables the webhook; "+
			"suppressed alerts; and missed, for events pruned before their delivery.", "type", "outcome")
	if types == nil {
		for _, t := range store.EventTypes() {
			types = append(types, string(t))
		}
	}
	all := make(deliveries)
	for _, t := range append(slices.Clone(types), other) {
		all[t] = make(map[string]prometheus.Counter)
		for _, o := range append(webhookOutcomes(), other) {
			all[t][o] = v.WithLabelValues(t, o)
		}
	}
	return all
}

// ObserveDelivery counts the outcome of an attempt to deliver an event of a type.
func (m *Metrics) ObserveDelivery(eventType, outcome string) {
	byOutcome, known := m.deliveries[eventType]
	if !known {
		byOutcome = m.deliveries[other]
	}
	c, known := byOutcome[outcome]
	if !known {
		c = byOutcome[other]
	}
	c.Inc()
}
