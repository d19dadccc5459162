package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cuelight/cuelight/store"
)

// webhookOutcomes are what may become of a delivery, in the words of the package
// webhook.
func webhookOutcomes() []string {
	return []string{"delivered", "failed", "dead", "gone", "suppressed", "missed"}
}

// other stands for what has no name here, so that labels stay few.
const other = "other"

type deliveries map[string]map[string]prometheus.Counter // by type and outcome

func (m *Metrics) newDeliveries(types []string) deliveries {
	v := m.counter("webhook_deliveries_total",
		"Tries to deliver an event to a webhook, by what they came to: delivered; failed, to be tried again; dead; gone, which turns the webhook off; "+
			"suppressed alerts; and missed, where events were deleted before they were looked at.", "type", "outcome")
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

// WebhookDelivery counts what became of a try to deliver an event of a type.
func (m *Metrics) WebhookDelivery(eventType, outcome string) {
	of, known := m.deliveries[eventType]
	if !known {
		of = m.deliveries[other]
	}
	c, known := of[outcome]
	if !known {
		c = of[other]
	}
	c.Inc()
}
