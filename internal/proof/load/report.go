package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// figure is a median over the phases, without the crowd and with it.
type figure struct {
	Without float64 `json:"without"`
	With    float64 `json:"with"`
	Ratio   float64 `json:"ratio"`
}

func newFigure(without, with float64) figure {
	f := figure{Without: without, With: with}
	if without > 0 {
		f.Ratio = math.Round(100*with/without) / 100
	}
	return f
}

// summary is what came of it all.
type summary struct {
	OwnP50    figure `json:"own_wait_p50_ms"`   // of the daemon's tasks
	OwnP99    figure `json:"own_wait_p99_ms"`   // of all phases together
	OtherP50  figure `json:"other_wait_p50_ms"` // of the other pipeline's
	OtherP99  figure `json:"other_wait_p99_ms"`
	Memory    figure `json:"daemon_memory_mib"` // largest with the crowd, and before the first
	Anonymous figure `json:"daemon_anonymous_mib"`
	Heap      figure `json:"daemon_heap_in_use_mib"`
	Stacks    figure `json:"daemon_stacks_mib"`
	Daemon    figure `json:"daemon_cpu"`
	Postgres  figure `json:"postgres_cpu"`
	Crowd     figure `json:"crowd_cpu"`
	Transcode figure `json:"transcode_ms"`
	Events    figure `json:"events"`

	LagP50    float64            `json:"event_lag_p50_ms"` // until a client had it
	LagP99    float64            `json:"event_lag_p99_ms"`
	Requests  int                `json:"requests"`
	AnswerP50 float64            `json:"answer_p50_ms"`
	AnswerP99 float64            `json:"answer_p99_ms"`
	Slowest   map[string]float64 `json:"answer_p99_by_path_ms"`

	Told    int      `json:"events_told"` // to all streams together
	Streams int      `json:"streams"`
	Drops   int      `json:"drops"`
	Resyncs int      `json:"resyncs"`
	Behind  int      `json:"behind"` // streams that were not told of the last event
	Gaps    int      `json:"gaps"`   // streams that were told of other events than there are
	Changes int      `json:"page_changes"`
	Tasks   int      `json:"task_streams_ended"`
	Late    int      `json:"progress_after_end"`
	Failed  int      `json:"failed_requests"`
	Faulty  int      `json:"faults"`
	Faults  []string `json:"first_faults"`
	Missed  int      `json:"missed_wake_ups"`
	Logged  []string `json:"logged"` // by the daemon: warnings and errors
}

// sound reports whether all were told what they should have been.
func (s summary) sound() bool {
	return s.Resyncs+s.Behind+s.Gaps+s.Failed+s.Faulty+len(s.Logged) == 0 && s.Told > 0 && s.Streams > 0
}

// within reports whether the crowd cost no more than it may.
func (s summary) within(factor float64) bool {
	for _, f := range []figure{s.OwnP99, s.OtherP99, s.Memory} {
		if f.Ratio == 0 || f.Ratio > factor {
			return false
		}
	}
	return true
}

// halves are the phases without the crowd, and with it.
func halves(phases []phase) (without, with []phase) {
	for _, p := range phases {
		if p.crowd {
			with = append(with, p)
		} else {
			without = append(without, p)
		}
	}
	return without, with
}

// median is that of a figure of the phases.
func median(phases []phase, of func(p phase) float64) float64 {
	var all []float64
	for _, p := range phases {
		all = append(all, of(p))
	}
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return 0
	}
	return (all[(n-1)/2] + all[n/2]) / 2
}

func summarise(phases []phase) (s summary) {
	without, with := halves(phases)
	compared := func(of func(p phase) float64) figure { return newFigure(median(without, of), median(with, of)) }
	// A phase has too few waits for a 99th percentile: of a hundred it is the longest.
	waits := func(of func(p phase) []float64) (p50, p99 figure) {
		p50 = compared(func(p phase) float64 { return percentile(of(p), 50) })
		return p50, newFigure(percentile(together(without, of), 99), percentile(together(with, of), 99))
	}
	s.OwnP50, s.OwnP99 = waits(func(p phase) []float64 { return p.own })
	s.OtherP50, s.OtherP99 = waits(func(p phase) []float64 { return p.other })
	// What a crowd has used is given back to the system only by and by: the phase
	// before the first knows what there is without.
	grown := func(of func(p phase) float64) figure {
		most := 0.0
		for _, p := range with {
			most = max(most, of(p))
		}
		return newFigure(of(without[0]), most)
	}
	s.Memory = grown(func(p phase) float64 { return mebibytes(p.resident) })
	s.Anonymous = grown(func(p phase) float64 { return mebibytes(p.anonymous) })
	s.Heap = grown(func(p phase) float64 { return mebibytes(p.heap["HeapInuse"]) })
	s.Stacks = grown(func(p phase) float64 { return mebibytes(p.heap["Stack"]) })
	s.Daemon = compared(func(p phase) float64 { return p.daemon })
	s.Postgres = compared(func(p phase) float64 { return p.postgres })
	s.Crowd = compared(func(p phase) float64 { return p.others })
	s.Transcode = compared(func(p phase) float64 { return percentile(p.transcodes, 50) })
	s.Events = compared(func(p phase) float64 { return float64(p.events) })
	s.witness(with)
	return s
}

// together are the values of all phases.
func together(phases []phase, of func(p phase) []float64) (all []float64) {
	for _, p := range phases {
		all = append(all, of(p)...)
	}
	return all
}

// witness adds up what the crowds saw.
func (s *summary) witness(phases []phase) {
	answers := make(map[string][]float64)
	var every []float64
	for _, p := range phases {
		seen := p.seen
		for _, a := range seen.Streams {
			s.Told += a.N
		}
		s.Streams += len(seen.Streams)
		s.Drops, s.Resyncs, s.Behind = s.Drops+seen.Drops, s.Resyncs+seen.Resyncs, s.Behind+seen.Behind
		s.Changes, s.Tasks, s.Failed = s.Changes+seen.Changes, s.Tasks+seen.Tasks, s.Failed+seen.Failed
		s.Late += seen.Late
		s.Gaps += len(p.wrong)
		s.Faulty += seen.Faulty
		s.Faults = append(s.Faults, append(seen.Faults, p.wrong[:min(len(p.wrong), 5)]...)...)
		for path, took := range seen.Answers {
			answers[path] = append(answers[path], took...)
			every = append(every, took...)
		}
	}
	lags := together(phases, func(p phase) []float64 { return p.seen.Lags })
	s.LagP50, s.LagP99 = percentile(lags, 50), percentile(lags, 99)
	s.Requests, s.AnswerP50, s.AnswerP99 = len(every), percentile(every, 50), percentile(every, 99)
	s.Slowest = make(map[string]float64)
	for path, took := range answers {
		s.Slowest[path] = percentile(took, 99)
	}
}

// table is a summary for people.
func (s summary) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-40s %10s %10s %7s\n", "", "without", "with", "ratio")
	for _, line := range []struct {
		what string
		figure
	}{
		{"daemon's tasks wait, p50 ms", s.OwnP50}, {"daemon's tasks wait, p99 ms", s.OwnP99},
		{"other pipeline's wait, p50 ms", s.OtherP50}, {"other pipeline's wait, p99 ms", s.OtherP99},
		{"daemon's memory, MiB", s.Memory}, {"  not of files", s.Anonymous}, {"  heap in use", s.Heap}, {"  stacks", s.Stacks},
		{"processors used by the daemon", s.Daemon}, {"  by PostgreSQL", s.Postgres}, {"  by the crowd", s.Crowd},
		{"transcode, ms", s.Transcode}, {"events", s.Events},
	} {
		fmt.Fprintf(&b, "%-40s %10.2f %10.2f %7.2f\n", line.what, line.Without, line.With, line.Ratio)
	}
	fmt.Fprintf(&b, "\n%d streams were told of %d events, p50 %.1f and p99 %.1f ms after they happened; %d were dropped and went on\n",
		s.Streams, s.Told, s.LagP50, s.LagP99, s.Drops)
	fmt.Fprintf(&b, "%d requests were answered, p50 %.1f and p99 %.1f ms after they were due\n", s.Requests, s.AnswerP50, s.AnswerP99)
	fmt.Fprintf(&b, "gaps %d, behind %d, told to look anew %d, failed requests %d, other faults %d, wake-ups missed %d\n\n",
		s.Gaps, s.Behind, s.Resyncs, s.Failed, s.Faulty, s.Missed)
	return b.String()
}
