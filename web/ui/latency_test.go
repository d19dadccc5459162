package ui

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/report"
)

func TestChart_DrawsTheMeasuredPoints(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	point := func(minutes int, n int, p50, p95, p99 time.Duration) report.LatencyPoint {
		return report.LatencyPoint{
			At:   from.Add(time.Duration(minutes) * time.Minute),
			Wait: report.Percentiles{N: n, P50: p50, P95: p95, P99: p99},
		}
	}
	const ms = time.Millisecond
	l := report.Latency{Step: time.Minute, All: point(0, 3, 10*ms, 100*ms, 700*ms), Points: []report.LatencyPoint{
		point(0, 2, 10*ms, 100*ms, 700*ms), point(1, 1, 100*ms, 100*ms, 100*ms), point(5, 1, 10*ms, 10*ms, 10*ms),
	}}
	c := newChart(l, 10*time.Minute, "Wake latency", "", func(p report.LatencyPoint) report.Percentiles { return p.Wait })
	// The scale is from 10 ms at the bottom to 1 s at the top. A point is in the middle of its step.
	want := map[string]string{
		"p50": "M50.0 100.00L150.0 50.00", "p95": "M50.0 50.00L150.0 50.00", "p99": "M50.0 7.75L150.0 50.00",
	}
	for _, line := range c.Lines {
		if line.Path != want[line.Class] {
			t.Errorf("%s is drawn as %s, want %s", line.Class, line.Path, want[line.Class])
		}
		if len(line.Dots) != 1 || line.Dots[0].X != "55.00%" || line.Dots[0].Y != "100.00%" {
			t.Errorf("the point without neighbours is drawn at %v", line.Dots)
		}
	}
	if len(c.Levels) != 3 || c.Levels[0].Text != "10 ms" || c.Levels[2].Text != "1 s" || c.Levels[2].Y != "0.00%" {
		t.Errorf("levels are %v", c.Levels)
	}
}
