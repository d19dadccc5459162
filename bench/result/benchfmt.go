package result

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// WriteBenchmarks writes the figures in the format of Go's benchmarks, a line
// per round, for
//
//	benchstat old.txt new.txt
//
// The scenario is the benchmark's name, with words of the case; numbers of the
// case and the contestant are its parameters:
//
//	BenchmarkE2EIdle/contestant=cuelight 1 2.41 p50-ms 2.9 p95-ms 3.1 p99-ms
//	BenchmarkDrain/tasks=5000/contestant=cuelight 1 21034 tasks/s
//
// benchstat compares only what has the same configuration, which here is the
// machine's. Commit, mode, time and versions are in the first lines, for people:
// as configuration they would make every two files incomparable.
func (r *Result) WriteBenchmarks(w io.Writer) error {
	_, err := w.Write(r.benchmarks())
	return err
}

// percentiles are those that benchstat is told.
var percentiles = [...]float64{50, 95, 99}

func (r *Result) benchmarks() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Cuelight %s, %s, %s\n", oneLine(r.Commit), r.Mode, r.StartedAt.UTC().Format(time.RFC3339))
	for _, program := range slices.Sorted(maps.Keys(r.Machine.Versions)) {
		fmt.Fprintf(&b, "# %s %s\n", program, oneLine(r.Machine.Versions[program]))
	}
	fmt.Fprintf(&b, "\ngoos: %s\ngoarch: %s\npkg: github.com/cuelight/cuelight/bench\n", r.Machine.OS, r.Machine.Arch)
	fmt.Fprintf(&b, "cpu: %s\ncores: %d\nfilesystem: %s\n\n",
		oneLine(r.Machine.CPU), r.Machine.Cores, oneLine(r.Machine.Filesystem))
	r.units(&b)
	for i := range r.Figures {
		f := &r.Figures[i]
		for _, round := range f.Rounds {
			fmt.Fprintf(&b, "%s 1%s\n", benchmark(f.Key()), measured(f, round))
		}
	}
	return b.Bytes()
}

// units says in which direction each one is better, where all figures agree.
func (r *Result) units(b *bytes.Buffer) {
	better := map[string]string{}
	var order []string
	for i := range r.Figures {
		f := &r.Figures[i]
		way := "higher"
		if f.Lower {
			way = "lower"
		}
		for _, round := range f.Rounds {
			for field := range strings.FieldsSeq(measured(f, round)) {
				if _, err := strconv.ParseFloat(field, 64); err == nil {
					continue
				}
				before, seen := better[field]
				if !seen {
					order = append(order, field)
				}
				if seen && before != way {
					way = ""
				}
				better[field] = way
			}
		}
	}
	for _, unit := range order {
		if better[unit] != "" {
			fmt.Fprintf(b, "Unit %s better=%s\n", unit, better[unit])
		}
	}
	b.WriteString("\n")
}

// measured are the round's values with their units, each after a blank.
func measured(f *Figure, round Round) string {
	unit := strings.Join(strings.Fields(f.Unit), "-")
	if len(round.Samples) == 0 {
		return " " + digits(round.Value) + " " + unit
	}
	var b strings.Builder
	for _, p := range percentiles {
		fmt.Fprintf(&b, " %s p%v-%s", digits(round.Percentile(p)), p, unit)
	}
	return b.String()
}

func digits(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// benchmark is the name of a figure as Go's format has it, in which blanks and
// slashes have a meaning.
func benchmark(k Key) string {
	name, parameters := "Benchmark"+camel(k.Scenario), ""
	if k.Case != "" {
		for part := range strings.SplitSeq(k.Case, ",") {
			if strings.Contains(part, "=") {
				parameters += "/" + word(part)
			} else {
				name += camel(part)
			}
		}
	}
	return name + parameters + "/contestant=" + word(k.System)
}

// camel makes IdleDaemon of idle_daemon.
func camel(s string) string {
	var b strings.Builder
	for _, part := range strings.FieldsFunc(s, func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) }) {
		if part == "e2e" {
			part = "E2E"
		}
		first := []rune(part)
		first[0] = unicode.ToUpper(first[0])
		b.WriteString(string(first))
	}
	return b.String()
}

func word(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) || c == '/' {
			return '_'
		}
		return c
	}, s)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
