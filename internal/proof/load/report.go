package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

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
	DaemonWaitP50 comparison `json:"own_wait_p50_ms"`
	DaemonWaitP99 comparison `json:"own_wait_p99_ms"` // of all phases together
	OtherWaitP50  comparison `json:"other_wait_p50_ms"`
	OtherWaitP99  comparison `json:"other_wait_p99_ms"`    // of all phases together
	Memory        comparison `json:"daemon_memory_mib"`    // the largest with clients, and before them
	Anonymous     comparison `json:"daemon_anonymous_mib"` // as the two that follow, compared as Memory is
	Heap          comparison `json:"daemon_heap_in_use_mib"`
	Stacks        comparison `json:"daemon_stacks_mib"`
	DaemonCPU     comparison `json:"daemon_cpu"`
	PostgresCPU   comparison `json:"postgres_cpu"`
	ClientsCPU    comparison `json:"clients_cpu"`
	Transcode     comparison `json:"transcode_ms"`
	Events        comparison `json:"events"`

	LagP50        float64            `json:"event_lag_p50_ms"` // until a client received the event
	LagP99        float64            `json:"event_lag_p99_ms"`
	Requests      int                `json:"requests"`
	ResponseP50   float64            `json:"response_p50_ms"`
	ResponseP99   float64            `json:"response_p99_ms"`
	ResponsePaths map[string]float64 `json:"response_p99_by_path_ms"`

	Received     int      `json:"events_received"` // by all streams together
	Streams      int      `json:"streams"`
	Drops        int      `json:"drops"`
	Resyncs      int      `json:"resyncs"`
	Behind       int      `json:"behind"`     // streams that did not receive the last event in time
	Mismatches   int      `json:"mismatches"` // streams that received other events than there are
	PageChanges  int      `json:"page_changes"`
	TaskStreams  int      `json:"task_streams_ended"`
	LateProgress int      `json:"progress_after_end"`
	Failed       int      `json:"failed_requests"`
	Errors       int      `json:"errors"`
	FirstErrors  []string `json:"first_errors"`
	MissedWakes  int      `json:"missed_wakes"`
	DaemonErrors []string `json:"daemon_errors"` // warnings and errors in its log
}

// isCorrect reports whether all clients received what they should have.
func (s summary) isCorrect() bool {
	return s.Resyncs+s.Behind+s.Mismatches+s.Failed+s.Errors+len(s.DaemonErrors) == 0 && s.Received > 0 && s.Streams > 0
}

// isWithin reports whether waits and memory grew by at most the factor.
func (s summary) isWithin(factor float64) bool {
	for _, c := range []comparison{s.DaemonWaitP99, s.OtherWaitP99, s.Memory} {
		if c.Ratio == 0 || c.Ratio > factor {
			return false
		}
	}
	return true
}

func summarize(phases []phase) (s summary) {
	var without, with []phase
	for _, p := range phases {
		if p.withClients {
			with = append(with, p)
		} else {
			without = append(without, p)
		}
	}
	medians := func(of func(phase) float64) comparison { return newComparison(median(without, of), median(with, of)) }
	// One phase has too few waits for a 99th percentile: of a hundred it is the longest.
	waits := func(of func(phase) []float64) (p50, p99 comparison) {
		p50 = medians(func(p phase) float64 { return proofkit.Percentile(of(p), 50) })
		return p50, newComparison(proofkit.Percentile(merge(without, of), 99), proofkit.Percentile(merge(with, of), 99))
	}
	s.DaemonWaitP50, s.DaemonWaitP99 = waits(func(p phase) []float64 { return p.daemonWaits })
	s.OtherWaitP50, s.OtherWaitP99 = waits(func(p phase) []float64 { return p.otherWaits })
	// A process returns memory to the system only slowly, so only the phase before the first
	// clients shows what the daemon needs without them.
	growth := func(of func(phase) int64) comparison {
		most := int64(0)
		for _, p := range with {
			most = max(most, of(p))
		}
		return newComparison(mebibytes(of(without[0])), mebibytes(most))
	}
	s.Memory = growth(func(p phase) int64 { return p.resident })
	s.Anonymous = growth(func(p phase) int64 { return p.anonymous })
	s.Heap = growth(func(p phase) int64 { return p.heap["HeapInuse"] })
	s.Stacks = growth(func(p phase) int64 { return p.heap["Stack"] })
	s.DaemonCPU = medians(func(p phase) float64 { return p.daemonCPU })
	s.PostgresCPU = medians(func(p phase) float64 { return p.postgresCPU })
	s.ClientsCPU = medians(func(p phase) float64 { return p.clientsCPU })
	s.Transcode = medians(func(p phase) float64 { return proofkit.Percentile(p.transcodes, 50) })
	s.Events = medians(func(p phase) float64 { return float64(p.events) })
	s.addObservations(with)
	return s
}

func median(phases []phase, of func(phase) float64) float64 {
	var values []float64
	for _, p := range phases {
		values = append(values, of(p))
	}
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

// merge returns the values of all phases.
func merge(phases []phase, of func(phase) []float64) (values []float64) {
	for _, p := range phases {
		values = append(values, of(p)...)
	}
	return values
}

// addObservations adds up what the clients received.
func (s *summary) addObservations(phases []phase) {
	byPath := make(map[string][]float64)
	var all []float64
	for _, p := range phases {
		o := p.observation
		for _, c := range o.Streams {
			s.Received += c.N
		}
		s.Streams += len(o.Streams)
		s.Drops += o.Drops
		s.Resyncs += o.Resyncs
		s.Behind += o.Behind
		s.PageChanges += o.PageChanges
		s.TaskStreams += o.TaskStreams
		s.LateProgress += o.LateProgress
		s.Failed += o.FailedResponses
		s.Mismatches += len(p.mismatches)
		s.Errors += o.Errors
		s.FirstErrors = slices.Concat(s.FirstErrors, o.FirstErrors, p.mismatches[:min(len(p.mismatches), 5)])
		for path, durations := range o.Responses {
			byPath[path] = append(byPath[path], durations...)
			all = append(all, durations...)
		}
	}
	lags := merge(phases, func(p phase) []float64 { return p.observation.Lags })
	s.LagP50, s.LagP99 = proofkit.Percentile(lags, 50), proofkit.Percentile(lags, 99)
	s.Requests, s.ResponseP50, s.ResponseP99 = len(all), proofkit.Percentile(all, 50), proofkit.Percentile(all, 99)
	s.ResponsePaths = make(map[string]float64)
	for path, durations := range byPath {
		s.ResponsePaths[path] = proofkit.Percentile(durations, 99)
	}
}

// table returns the summary as a table.
func (s summary) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-40s %10s %10s %7s\n", "", "without", "with", "ratio")
	for _, row := range []struct {
		name string
		comparison
	}{
		{"wait of the daemon's tasks, p50 ms", s.DaemonWaitP50}, {"wait of the daemon's tasks, p99 ms", s.DaemonWaitP99},
		{"wait in the other pipeline, p50 ms", s.OtherWaitP50}, {"wait in the other pipeline, p99 ms", s.OtherWaitP99},
		{"memory of the daemon, MiB", s.Memory}, {"  not backed by files", s.Anonymous},
		{"  heap in use", s.Heap}, {"  stacks", s.Stacks},
		{"processors used by the daemon", s.DaemonCPU}, {"  by PostgreSQL", s.PostgresCPU},
		{"  by the clients", s.ClientsCPU},
		{"transcode, ms", s.Transcode}, {"events", s.Events},
	} {
		fmt.Fprintf(&b, "%-40s %10.2f %10.2f %7.2f\n", row.name, row.Without, row.With, row.Ratio)
	}
	b.WriteByte('\n')
	for _, row := range []struct{ name, text string }{
		{"streams", fmt.Sprintf("%d, dropped and resumed %d times", s.Streams, s.Drops)},
		{"events received", fmt.Sprintf("%d, after p50 %.1f ms, p99 %.1f ms", s.Received, s.LagP50, s.LagP99)},
		{"responses", fmt.Sprintf("%d, after p50 %.1f ms, p99 %.1f ms", s.Requests, s.ResponseP50, s.ResponseP99)},
		{"streams with errors", fmt.Sprintf("%d with other events than there are, %d behind, %d to resync",
			s.Mismatches, s.Behind, s.Resyncs)},
		{"other errors", fmt.Sprintf("%d failed requests, %d errors", s.Failed, s.Errors)},
		{"claims only a sweep found", fmt.Sprint(s.MissedWakes)},
	} {
		fmt.Fprintf(&b, "%-40s %s\n", row.name, row.text)
	}
	b.WriteByte('\n')
	return b.String()
}
