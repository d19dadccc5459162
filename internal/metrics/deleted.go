package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cuelight/cuelight/stages"
)

// deleted counts the deletions of this process.
type deleted struct {
	unpublished, purged                                       prometheus.Counter
	finished, dead, workers, auditEntries, events, deliveries prometheus.Counter
	sourceCopies                                              prometheus.Counter
}

func (m *Metrics) newDeleted() deleted {
	pruned := m.counter("rows_pruned_total",
		"Rows that this process deleted because their retention was over; of events, rows of the outbox.", "kind")
	return deleted{
		unpublished: m.counter("tasks_unpublished_total", "Deleted tasks whose published files this process removed.").WithLabelValues(),
		purged:      m.counter("tasks_purged_total", "Deleted tasks whose files and rows this process removed.").WithLabelValues(),
		sourceCopies: m.counter("source_copies_removed_total",
			"Tasks of which this process removed the copy of the source and the results.").WithLabelValues(),
		finished:     pruned.WithLabelValues("finished_task"),
		dead:         pruned.WithLabelValues("dead_task"),
		workers:      pruned.WithLabelValues("worker"),
		auditEntries: pruned.WithLabelValues("audit_entry"),
		events:       pruned.WithLabelValues("event"),
		deliveries:   pruned.WithLabelValues("delivery"),
	}
}

func (d deleted) observe(e stages.Event) {
	switch e.Kind {
	case stages.TaskUnpublished:
		d.unpublished.Inc()
	case stages.TaskPurged:
		d.purged.Inc()
	case stages.EventsPruned:
		d.events.Add(float64(e.Count))
	case stages.RowsPruned:
		d.finished.Add(float64(e.Pruned.Finished))
		d.dead.Add(float64(e.Pruned.Dead))
		d.workers.Add(float64(e.Pruned.Workers))
		d.auditEntries.Add(float64(e.Count))
	}
}

// ObserveSourceCopies counts tasks whose copies of sources were removed.
func (m *Metrics) ObserveSourceCopies(n int) { m.deleted.sourceCopies.Add(float64(n)) }

// ObserveDeletedDeliveries counts deliveries of webhooks that were deleted.
func (m *Metrics) ObserveDeletedDeliveries(n int) { m.deleted.deliveries.Add(float64(n)) }
