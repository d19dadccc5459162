package metrics

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// poolCollector tells of the connections of a pool.
type poolCollector struct {
	stat        func() *pgxpool.Stat
	connections *prometheus.Desc
	figures     []poolFigure
}

type poolFigure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*pgxpool.Stat) float64
}

func newPoolCollector(stat func() *pgxpool.Stat) *poolCollector {
	c := &poolCollector{stat: stat, connections: desc("pool_connections", "Connections of the pool, by what they do.", "state")}
	figure := func(name, help string, kind prometheus.ValueType, value func(*pgxpool.Stat) float64) {
		c.figures = append(c.figures, poolFigure{desc("pool_"+name, help), kind, value})
	}
	figure("connections_max", "How many connections the pool may have.", prometheus.GaugeValue,
		func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) })
	figure("acquires_total", "Connections that were taken from the pool.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.AcquireCount()) })
	figure("waits_total", "Connections that had to be waited for.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.EmptyAcquireCount()) })
	figure("wait_seconds_total", "Time for which connections were waited for.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return s.EmptyAcquireWaitTime().Seconds() })
	figure("cancels_total", "Connections that were not waited for to the end.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.CanceledAcquireCount()) })
	figure("opened_total", "Connections that were opened.", prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.NewConnsCount()) })
	return c
}

// Describe makes it a prometheus.Collector.
func (c *poolCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect makes it a prometheus.Collector.
func (c *poolCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stat()
	for state, n := range map[string]int32{
		"busy": s.AcquiredConns(), "idle": s.IdleConns(), "opening": s.ConstructingConns(),
	} {
		to <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(n), state)
	}
	for _, f := range c.figures {
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(s))
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}
