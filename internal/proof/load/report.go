package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// phase is what was measured in one phase.
type phase struct {
	withClients bool
	waits       []float64  // of tasks until their claim, in ms
	resident    int64      // the largest memory of the daemon, in bytes
	cpu         [2]float64 // processors in use by the daemon and PostgreSQL, on average
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// compareStreams compares what streams received with the ids of all events, which are in order.
func compareStreams(ids []int64, streams []streamCount) (mismatches []string) {
	sums := make([]int64, len(ids)+1) // of the first ids
	for i, id := range ids {
		sums[i+1] = sums[i] + id
	}
	countUpTo := func(id int64) int {
		n, isThere := slices.BinarySearch(ids, id)
		if isThere {
			n++
		}
		return n
	}
	for i, s := range streams {
		from, to := countUpTo(s.From), countUpTo(s.Last)
		if to-from != s.N || sums[to]-sums[from] != s.Sum {
			mismatches = append(mismatches, fmt.Sprintf("stream %d received %d events after %d up to %d; there are %d",
				i, s.N, s.From, s.Last, to-from))
		}
	}
	return mismatches
}

// comparison is a figure without clients and with them.
type comparison struct {
	Without float64 `json:"without"`
	With    float64 `json:"with"`
	Ratio   float64 `json:"ratio"`
}

func newComparison(without, with float64) comparison {
	c := comparison{Without: without, With: with}
	if without > 0 {
		c.Ratio = math.Round(100*with/without) / 100
	}
	return c
}

// summary is the last line of the output. The comparisons are of medians over the phases, unless
// something else is said.
type summary struct {
	WaitP50     comparison `json:"own_wait_p50_ms"`
	WaitP99     comparison `json:"own_wait_p99_ms"`   // of all phases together
	Memory      comparison `json:"daemon_memory_mib"` // the largest with clients, and before them
	DaemonCPU   comparison `json:"daemon_cpu"`
	PostgresCPU comparison `json:"postgres_cpu"`

	LagP50      float64 `json:"event_lag_p50_ms"` // until a client received the event
	LagP99      float64 `json:"event_lag_p99_ms"`
	Requests    int     `json:"requests"`
	ResponseP50 float64 `json:"response_p50_ms"`
	ResponseP99 float64 `json:"response_p99_ms"`

	observation
	DaemonErrors []string `json:"daemon_errors"` // warnings and errors in its log
}

// isCorrect reports whether all clients received what they should have.
func (s summary) isCorrect() bool {
	return s.Errors+len(s.DaemonErrors) == 0 && s.Received > 0 && s.Streams > 0
}

// isWithin reports whether waits and memory grew by at most the factor.
func (s summary) isWithin(factor float64) bool {
	return s.WaitP99.Ratio > 0 && s.WaitP99.Ratio <= factor && s.Memory.Ratio > 0 && s.Memory.Ratio <= factor
}

func summarize(phases []phase, o observation) (s summary) {
	s.observation = o
	var without, with []phase
	for _, p := range phases {
		if p.withClients {
			with = append(with, p)
		} else {
			without = append(without, p)
		}
	}
	medians := func(of func(phase) float64) comparison { return newComparison(median(without, of), median(with, of)) }
	waits := func(p phase) []float64 { return p.waits }
	s.WaitP50 = medians(func(p phase) float64 { return proofkit.Percentile(p.waits, 50) })
	// One phase has too few waits for a 99th percentile.
	s.WaitP99 = newComparison(proofkit.Percentile(merge(without, waits), 99), proofkit.Percentile(merge(with, waits), 99))
	// A process returns memory to the system only slowly, so only the phase before the first
	// clients shows what the daemon needs without them.
	most := int64(0)
	for _, p := range with {
		most = max(most, p.resident)
	}
	s.Memory = newComparison(mebibytes(without[0].resident), mebibytes(most))
	s.DaemonCPU = medians(func(p phase) float64 { return p.cpu[0] })
	s.PostgresCPU = medians(func(p phase) float64 { return p.cpu[1] })
	s.LagP50, s.LagP99 = proofkit.Percentile(o.lags, 50), proofkit.Percentile(o.lags, 99)
	s.Requests = len(o.responses)
	s.ResponseP50, s.ResponseP99 = proofkit.Percentile(o.responses, 50), proofkit.Percentile(o.responses, 99)
	return s
}

// median is the lower one of two.
func median(phases []phase, of func(phase) float64) float64 {
	return proofkit.Percentile(merge(phases, func(p phase) []float64 { return []float64{of(p)} }), 50)
}

// merge returns the values of all phases.
func merge(phases []phase, of func(phase) []float64) (values []float64) {
	for _, p := range phases {
		values = append(values, of(p)...)
	}
	return values
}

// table returns the summary as a table.
func (s summary) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-40s %10s %10s %7s\n", "", "without", "with", "ratio")
	for _, row := range []struct {
		name string
		comparison
	}{
		{"wait of the daemon's tasks, p50 ms", s.WaitP50}, {"wait of the daemon's tasks, p99 ms", s.WaitP99},
		{"memory of the daemon, MiB", s.Memory}, {"processors used by the daemon", s.DaemonCPU},
		{"  by PostgreSQL", s.PostgresCPU},
	} {
		fmt.Fprintf(&b, "%-40s %10.2f %10.2f %7.2f\n", row.name, row.Without, row.With, row.Ratio)
	}
	fmt.Fprintf(&b, "\n%-40s %d, dropped and resumed %d times\n", "streams", s.Streams, s.Drops)
	fmt.Fprintf(&b, "%-40s %d, after p50 %.1f ms, p99 %.1f ms\n", "events received", s.Received, s.LagP50, s.LagP99)
	fmt.Fprintf(&b, "%-40s %d, after p50 %.1f ms, p99 %.1f ms\n", "responses", s.Requests, s.ResponseP50, s.ResponseP99)
	fmt.Fprintf(&b, "%-40s %d\n\n", "errors of streams and requests", s.Errors)
	return b.String()
}
