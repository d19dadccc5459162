package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// databaseCollector exports the metrics of a Database.
type databaseCollector struct {
	db            *Database
	up, age, took *prometheus.Desc
	metrics       map[string]databaseDesc // by metric
}

type databaseDesc struct {
	*prometheus.Desc
	labels int
}

func newDatabaseCollector(db *Database) *databaseCollector {
	c := &databaseCollector{
		db:      db,
		up:      desc("database_up", "1 if the database answered the last query for these metrics, otherwise 0."),
		age:     desc("database_snapshot_age_seconds", "Age of the snapshot of the database."),
		took:    desc("database_snapshot_duration_seconds", "Duration of the query for the snapshot of the database."),
		metrics: make(map[string]databaseDesc),
	}
	for _, m := range db.metrics {
		var labels []string
		for _, label := range m.labels {
			labels = append(labels, label.name)
		}
		c.metrics[m.name] = databaseDesc{desc(m.name, m.help, labels...), len(labels)}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *databaseCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.up
	to <- c.age
	to <- c.took
	for _, d := range c.metrics {
		to <- d.Desc
	}
}

// Collect implements prometheus.Collector. While the database does not answer, it
// exports the last snapshot, with its age; before the first answer, only database_up.
func (c *databaseCollector) Collect(to chan<- prometheus.Metric) {
	s, err := c.db.snapshot(context.Background())
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	up := 1.0
	if err != nil {
		up = 0
	}
	gauge(c.up, up)
	if s.at.IsZero() {
		return
	}
	gauge(c.age, time.Since(s.at).Seconds())
	gauge(c.took, s.took.Seconds())
	for series, value := range s.values {
		d := c.metrics[series.metric]
		gauge(d.Desc, value, series.labels[:d.labels]...)
	}
}
