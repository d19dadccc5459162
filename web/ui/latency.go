package ui

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/report"
)

// timeRange is a choice of the latency page.
type timeRange struct {
	Name, Word string
	length     time.Duration
}

var timeRanges = []timeRange{
	{"1h", "1 hour", time.Hour}, {"6h", "6 hours", 6 * time.Hour}, {"24h", "24 hours", 24 * time.Hour},
	{"7d", "7 days", 7 * day}, {"30d", "30 days", 30 * day},
}

// findTimeRange returns the range with a name, or the first one.
func findTimeRange(name string) timeRange {
	for _, r := range timeRanges {
		if r.Name == name {
			return r
		}
	}
	return timeRanges[0]
}

const chartPoints = 60

// chart shows percentiles over time. Lines are drawn in a box of 1000 by 100; all other
// positions are percents.
type chart struct {
	ID, Name, About string
	Lines           []chartLine
	Marks           []tick // of the time axis
	Levels          []level
	All             report.Percentiles
	Label           string

	at        func(report.LatencyPoint) report.Percentiles
	low, high float64 // of the scale, as powers of ten of a second
}

type chartLine struct {
	Class, Path string
	Dots        []dot
}

// dot is a point without neighbours.
type dot struct{ X, Y, Title string }

type level struct{ Y, Text string }

func (u *UI) serveLatency(w http.ResponseWriter, r *http.Request) {
	name := findTimeRange(r.URL.Query().Get("span")).Name
	u.servePage(w, r, "latency", "span="+name, map[string]any{"Range": name, "Ranges": timeRanges})
}

func (u *UI) loadLatency(ctx context.Context, k viewKey) (screen, error) {
	length := findTimeRange(k.values().Get("span")).length
	// The end is rounded up to a whole point, so that the chart moves by a point at a time.
	step := length / chartPoints
	until := time.Now().Truncate(step).Add(step)
	l, err := u.o.Store.Latency(ctx, report.LatencyQuery{Until: until, Span: length, Points: chartPoints})
	if err != nil {
		return screen{}, err
	}
	charts := []chart{newChart(l, length, "Wake latency", "from a stage becoming ready to its claim",
		func(p report.LatencyPoint) report.Percentiles { return p.Wait })}
	for i, stage := range u.layout.stages {
		charts = append(charts, newChart(l, length, stage, "completed attempts, from claim to completion",
			func(p report.LatencyPoint) report.Percentiles { return p.Work[i] }))
	}
	r := u.newRenderer()
	r.add("numbers", "", "numbers", charts)
	for i, c := range charts {
		c.ID = fmt.Sprintf("chart-%d", i)
		r.add(c.ID, "charts", "chart", c)
	}
	return r.screen("Latency")
}

func newChart(
	l report.Latency, length time.Duration, name, about string, at func(report.LatencyPoint) report.Percentiles) chart {
	c := chart{Name: name, About: about, All: at(l.All), at: at, low: math.Inf(1), high: math.Inf(-1)}
	c.Label = fmt.Sprintf("%s over time: 50th percentile %s, 95th %s, 99th %s", name,
		formatDuration(c.All.P50), formatDuration(c.All.P95), formatDuration(c.All.P99))
	for _, p := range l.Points {
		if q := at(p); q.N > 0 {
			c.low, c.high = min(c.low, logSeconds(q.P50)), max(c.high, logSeconds(q.P99))
		}
	}
	if math.IsInf(c.low, 1) {
		return c
	}
	c.low = math.Floor(c.low)
	c.high = max(math.Ceil(c.high+0.05), c.low+1)
	step := 1.0
	if c.high-c.low > 5 {
		step = 2
	}
	for e := c.low; e <= c.high; e += step {
		c.Levels = append(c.Levels, level{percent(c.y(e)), logSecondsText(e)})
	}
	c.Lines = []chartLine{
		c.line(l, length, "p99", func(p report.Percentiles) time.Duration { return p.P99 }),
		c.line(l, length, "p95", func(p report.Percentiles) time.Duration { return p.P95 }),
		c.line(l, length, "p50", func(p report.Percentiles) time.Duration { return p.P50 }),
	}
	c.Marks = timeMarks(l.All.At, length)
	return c
}

// y returns the position of a power of ten of a second, in percent from the top.
func (c chart) y(exponent float64) float64 { return 100 - 100*(exponent-c.low)/(c.high-c.low) }

// logSeconds returns a duration as a power of ten of a second, at least 10 µs.
func logSeconds(d time.Duration) float64 { return math.Log10(max(d.Seconds(), 1e-5)) }

func logSecondsText(exponent float64) string {
	switch {
	case exponent < -3:
		return fmt.Sprintf("%.3g ms", math.Pow(10, exponent+3))
	case exponent < 0:
		return fmt.Sprintf("%.0f ms", math.Pow(10, exponent+3))
	case exponent < 4:
		return fmt.Sprintf("%.0f s", math.Pow(10, exponent))
	}
	return fmt.Sprintf("%.0f h", math.Round(math.Pow(10, exponent)/3600))
}

// line draws a percentile. It connects a point to the next one if that is one step
// later.
func (c chart) line(
	l report.Latency, length time.Duration, class string, value func(report.Percentiles) time.Duration) chartLine {
	out := chartLine{Class: class}
	var path strings.Builder
	isConnected := func(i int) bool { // to the point before
		return i > 0 && i < len(l.Points) && c.at(l.Points[i-1]).N > 0 && c.at(l.Points[i]).N > 0 &&
			l.Points[i].At.Sub(l.Points[i-1].At) <= l.Step+l.Step/2
	}
	for i, p := range l.Points {
		q := c.at(p)
		if q.N == 0 {
			continue
		}
		x := 1000 * (float64(p.At.Sub(l.All.At)) + float64(l.Step)/2) / float64(length)
		y := c.y(logSeconds(value(q)))
		switch {
		case isConnected(i):
			fmt.Fprintf(&path, "L%.1f %.2f", x, y)
		case isConnected(i + 1):
			fmt.Fprintf(&path, "M%.1f %.2f", x, y)
		default:
			title := fmt.Sprintf("%s: %s %s of %d", short(p.At), class, formatDuration(value(q)), q.N)
			out.Dots = append(out.Dots, dot{percent(x / 10), percent(y), title})
		}
	}
	out.Path = path.String()
	return out
}

// timeMarks returns about six round times of a range.
func timeMarks(from time.Time, length time.Duration) (marks []tick) {
	step, layout := length/6, "15:04"
	if length > 2*day {
		step, layout = day, "2 Jan"
	}
	if length > 20*day {
		step = 5 * day
	}
	for t := from.UTC().Truncate(step).Add(step); t.Before(from.Add(length)); t = t.Add(step) {
		marks = append(marks, tick{percent(100 * float64(t.Sub(from)) / float64(length)), t.Format(layout), "middle"})
	}
	return marks
}
