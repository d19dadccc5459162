package metrics

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// poolCollector exports the state of a connection pool.
type poolCollector struct {
	stat        func() *pgxpool.Stat
	connections *prometheus.Desc
	metrics     []poolMetric
}

type poolMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*pgxpool.Stat) float64
}

func newPoolCollector(stat func() *pgxpool.Stat) *poolCollector {
	c := &poolCollector{stat: stat, connections: desc("pool_connections", "Connections of the pool by state.", "state")}
	metric := func(name, help string, kind prometheus.ValueType, value func(*pgxpool.Stat) float64) {
		c.metrics = append(c.metrics, poolMetric{desc("pool_"+name, help), kind, value})
	}
	metric("connections_max", "Limit of the pool's connections.", prometheus.GaugeValue,
		func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) })
	metric("acquires_total", "Connections acquired from the pool.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.AcquireCount()) })
	metric("waits_total", "Acquisitions that had to wait for a connection.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.EmptyAcquireCount()) })
	metric("wait_seconds_total", "Total time of these waits.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return s.EmptyAcquireWaitTime().Seconds() })
	metric("cancels_total", "Waits that ended without a connection.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.CanceledAcquireCount()) })
	metric("opened_total", "Opened connections.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.NewConnsCount()) })
	return c
}

// Describe implements prometheus.Collector.
func (c *poolCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stat()
	for state, n := range map[string]int32{
		"busy": s.AcquiredConns(), "idle": s.IdleConns(), "opening": s.ConstructingConns(),
	} {
		to <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(n), state)
	}
	for _, f := range c.metrics {
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(s))
	}
}

// desc describes a metric of this program.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}
