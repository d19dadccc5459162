package result

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// benchmarks returns the figures in the format of Go's benchmarks, a line per round, for
//
//	benchstat old.txt new.txt
//
// The benchmark's name is the scenario and the words of the case; numbers of the case and the
// system ("contestant", as in published results) are its parameters:
//
//	BenchmarkE2EIdle/contestant=cuelight 1 2.41 p50-ms 2.9 p95-ms 3.1 p99-ms
//	BenchmarkDrain/tasks=5000/contestant=cuelight 1 21034 tasks/s
//
// benchstat compares only files with the same configuration, which is that of the machine.
// Commit, mode, time and versions are comments, because otherwise no two files would compare.
func (r *Result) benchmarks() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Cuelight %s, %s, %s\n", oneLine(r.Commit), r.Mode, r.StartedAt.UTC().Format(time.RFC3339))
	for _, program := range slices.Sorted(maps.Keys(r.Machine.Versions)) {
		fmt.Fprintf(&b, "# %s %s\n", program, oneLine(r.Machine.Versions[program]))
	}
	fmt.Fprintf(&b, "\ngoos: %s\ngoarch: %s\npkg: github.com/cuelight/cuelight/bench\n", r.Machine.OS, r.Machine.Arch)
	fmt.Fprintf(&b, "cpu: %s\ncores: %d\nfilesystem: %s\n\n",
		oneLine(r.Machine.CPU), r.Machine.Cores, oneLine(r.Machine.Filesystem))
	r.writeUnits(&b)
	for i := range r.Figures {
		f := &r.Figures[i]
		for _, round := range f.Rounds {
			fmt.Fprintf(&b, "%s 1", benchmarkName(f.Key()))
			for _, v := range benchmarkValues(f, round) {
				fmt.Fprintf(&b, " %s %s", strconv.FormatFloat(v.number, 'g', 6, 64), v.unit)
			}
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// writeUnits writes the direction of each unit, unless figures disagree.
func (r *Result) writeUnits(b *bytes.Buffer) {
	directions := map[string]string{}
	var units []string
	for i := range r.Figures {
		f := &r.Figures[i]
		direction := "higher"
		if f.Lower {
			direction = "lower"
		}
		for _, round := range f.Rounds {
			for _, v := range benchmarkValues(f, round) {
				before, seen := directions[v.unit]
				if !seen {
					units = append(units, v.unit)
				} else if before != direction {
					direction = ""
				}
				directions[v.unit] = direction
			}
		}
	}
	for _, unit := range units {
		if directions[unit] != "" {
			fmt.Fprintf(b, "Unit %s better=%s\n", unit, directions[unit])
		}
	}
	b.WriteString("\n")
}

type benchmarkValue struct {
	number float64
	unit   string
}

// benchmarkValues returns the value of a round, or three percentiles of its samples.
func benchmarkValues(f *Figure, round Round) (values []benchmarkValue) {
	unit := strings.Join(strings.Fields(f.Unit), "-")
	if len(round.Samples) == 0 {
		return []benchmarkValue{{round.Value, unit}}
	}
	for _, p := range []float64{50, 95, 99} {
		values = append(values, benchmarkValue{round.Percentile(p), fmt.Sprintf("p%v-%s", p, unit)})
	}
	return values
}

// benchmarkName returns a name without blanks and slashes, which the format interprets.
func benchmarkName(k Key) string {
	name, parameters := "Benchmark"+camelCase(k.Scenario), ""
	escape := strings.NewReplacer(" ", "_", "/", "_").Replace
	for part := range strings.SplitSeq(k.Case, ",") {
		if strings.Contains(part, "=") {
			parameters += "/" + escape(part)
		} else {
			name += camelCase(part)
		}
	}
	return name + parameters + "/contestant=" + escape(k.System)
}

// camelCase converts idle_daemon to IdleDaemon.
func camelCase(s string) string {
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

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
