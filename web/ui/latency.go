package ui

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// spans are the choices of the page of latencies.
var timeRanges = []struct {
	Name, Word string
	Span       time.Duration
}{
	{"1h", "1 hour", time.Hour}, {"6h", "6 hours", 6 * time.Hour}, {"24h", "24 hours", 24 * time.Hour},
	{"7d", "7 days", 7 * 24 * time.Hour}, {"30d", "30 days", 30 * 24 * time.Hour},
}

const chartPoints = 60

// chart is percentiles over time. Lines are drawn in a box of 1000 by 100; what is
// written beside them is placed in percents.
type chart struct {
	ID, Name, About string
	Lines           []chartLine
	Marks           []tick // along the time
	Levels          []level
	All             store.Percentiles
	Label           string
}

type chartLine struct {
	Class, Path string
	Dots        []dot
}

// dot is a point that no line leads to.
type dot struct{ X, Y, Title string }

type level struct {
	Y, Text string
}

func (u *UI) serveLatency(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("span")
	if !slices.ContainsFunc(timeRanges, func(s struct {
		Name, Word string
		Span       time.Duration
	}) bool {
		return s.Name == name
	}) {
		name = timeRanges[0].Name
	}
	u.servePage(w, r, viewKey{page: "latency", query: "span=" + name}, map[string]any{"Span": name, "Spans": timeRanges})
}

func (u *UI) loadLatency(ctx context.Context, k viewKey) (screen, error) {
	span := timeRanges[0]
	for _, s := range timeRanges {
		if s.Name == k.values().Get("span") {
			span = s
		}
	}
	// A span ends where a stretch does, so that the picture moves a stretch at a time.
	step := span.Span / chartPoints
	until := time.Now().Truncate(step).Add(step)
	l, err := u.o.Store.Latency(ctx, store.LatencyQuery{Until: until, Span: span.Span, Points: chartPoints})
	if err != nil {
		return screen{}, err
	}
	d := u.newRenderer()
	at := func(p store.LatencyPoint) store.Percentiles { return p.Wait }
	charts := []chart{newChart(l, span.Span, "Wake latency", "from a stage becoming ready to its claim", at)}
	for i, stage := range u.layout.stages {
		charts = append(charts, newChart(l, span.Span, stage, "completed attempts, from claim to completion",
			func(p store.LatencyPoint) store.Percentiles { return p.Work[i] }))
	}
	d.add("numbers", "", "numbers", charts)
	for i, c := range charts {
		c.ID = fmt.Sprintf("chart-%d", i)
		d.add(c.ID, "charts", "chart", c)
	}
	return d.screen("Latency")
}

func newChart(l store.Latency, of time.Duration, name, about string, at func(store.LatencyPoint) store.Percentiles) chart {
	c := chart{Name: name, About: about, All: at(l.All)}
	c.Label = fmt.Sprintf("%s over time: 50th percentile %s, 95th %s, 99th %s", name, formatDuration(c.All.P50), formatDuration(c.All.P95), formatDuration(c.All.P99))
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range l.Points {
		if q := at(p); q.N > 0 {
			low, high = min(low, logSeconds(q.P50)), max(high, logSeconds(q.P99))
		}
	}
	if math.IsInf(low, 1) {
		return c
	}
	low, high = math.Floor(low), max(math.Ceil(high+0.05), math.Floor(low)+1)
	y := func(d time.Duration) float64 { return 100 - 100*(logSeconds(d)-low)/(high-low) }
	for e := low; e <= high; e++ {
		c.Levels = append(c.Levels, level{percent(100 - 100*(e-low)/(high-low)), logSecondsText(e)})
	}
	if len(c.Levels) > 6 {
		var some []level
		for i := 0; i < len(c.Levels); i += 2 {
			some = append(some, c.Levels[i])
		}
		c.Levels = some
	}
	for _, line := range []struct {
		class string
		of    func(store.Percentiles) time.Duration
	}{
		{"p99", func(p store.Percentiles) time.Duration { return p.P99 }},
		{"p95", func(p store.Percentiles) time.Duration { return p.P95 }},
		{"p50", func(p store.Percentiles) time.Duration { return p.P50 }},
	} {
		c.Lines = append(c.Lines, drawLine(l, of, line.class, at, line.of, y))
	}
	c.Marks = timeMarks(l.All.At, of)
	return c
}

// decade is a duration on the scale; all below 10 µs is one.
func logSeconds(d time.Duration) float64 { return math.Log10(max(d.Seconds(), 1e-5)) }

// decadeWord is a power of ten of seconds.
func logSecondsText(e float64) string {
	switch {
	case e < -3:
		return fmt.Sprintf("%.3g ms", math.Pow(10, e+3))
	case e < 0:
		return fmt.Sprintf("%.0f ms", math.Pow(10, e+3))
	case e < 4:
		return fmt.Sprintf("%.0f s", math.Pow(10, e))
	}
	return fmt.Sprintf("%.0f h", math.Round(math.Pow(10, e)/3600))
}

func drawLine(l store.Latency, of time.Duration, class string, at func(store.LatencyPoint) store.Percentiles,
	value func(store.Percentiles) time.Duration, y func(time.Duration) float64) chartLine {
	out := chartLine{Class: class}
	var b strings.Builder
	joined := false // to the point before
	for i, p := range l.Points {
		q := at(p)
		if q.N == 0 {
			joined = false
			continue
		}
		x := 1000 * (float64(p.At.Sub(l.All.At)) + float64(l.Step)/2) / float64(of)
		follows := i+1 < len(l.Points) && l.Points[i+1].At.Sub(p.At) <= l.Step+l.Step/2 && at(l.Points[i+1]).N > 0
		joined = joined && p.At.Sub(l.Points[i-1].At) <= l.Step+l.Step/2
		switch {
		case joined:
			fmt.Fprintf(&b, "L%.1f %.2f", x, y(value(q)))
		case follows:
			fmt.Fprintf(&b, "M%.1f %.2f", x, y(value(q)))
		}
		if !joined && !follows {
			out.Dots = append(out.Dots, dot{percent(x / 10), percent(y(value(q))), short(p.At) + ": " + class + " " + formatDuration(value(q)) + " of " + fmt.Sprint(q.N)})
		}
		joined = true
	}
	out.Path = b.String()
	return out
}

// timeMarks are some six round times in a span.
func timeMarks(from time.Time, of time.Duration) []tick {
	step, form := of/6, "15:04"
	if of > 48*time.Hour {
		form = "2 Jan"
	}
	if of > 20*24*time.Hour {
		step = 5 * 24 * time.Hour
	} else if of > 48*time.Hour {
		step = 24 * time.Hour
	}
	var out []tick
	for t := from.UTC().Truncate(step).Add(step); t.Before(from.Add(of)); t = t.Add(step) {
		out = append(out, tick{percent(100 * float64(t.Sub(from)) / float64(of)), t.Format(form), "middle"})
	}
	return out
}
