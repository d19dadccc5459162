// Package result has the outcome of a benchmark run: figures with their raw values, and the
// machine and the settings that they belong to. A [Result] is written as JSON; the report, its
// plots, the lines for benchstat and the summary are made from it alone.
//
//	r := result.New("quick")
//	r.Commit = result.HeadCommit(ctx, ".")
//	r.Machine = result.DescribeMachine(ctx, databaseDir, result.VersionCommands())
//	r.Add(result.Key{Scenario: "e2e", System: "cuelight", Case: "idle"}, "ms", result.FromDurations(latencies))
//	r.Add(result.Key{Scenario: "drain", System: "cuelight", Case: "tasks=5000"}, "tasks/s", result.FromValue(21_000))
//	path, err := r.Write("bench/results")
//
// Adding to the same key collects the rounds of a figure. A figure that was not measured does
// not exist: [Result.Find] reports that.
//
// The package measures only the machine. It does not compare results: benchstat does, with
// the files of [Result.Write].
package result

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format is the version of the JSON. Its keys say "contestant" for a system.
const Format = 1

// Result is one run of the benchmark. It is for one goroutine at a time.
type Result struct {
	Format          int       `json:"format"`
	StartedAt       time.Time `json:"at"`
	DurationSeconds float64   `json:"took_s"`
	Mode            string    `json:"mode"`   // "full", "quick" or "once"
	Commit          string    `json:"commit"` // of Cuelight; "-dirty" with uncommitted changes
	Machine         Machine   `json:"machine"`

	// Settings describes systems by name, notes on scenarios by name, and the server's settings
	// under "postgres".
	Settings map[string]string `json:"settings"`

	Figures []Figure `json:"figures"`

	// Skipped has the reasons why scenarios, systems or figures were not measured.
	Skipped map[string]string `json:"skipped,omitempty"`
}

// Machine is where the benchmark ran.
type Machine struct {
	CPU        string            `json:"cpu"`
	Cores      int               `json:"cores"` // that this process may use
	MemoryMiB  int               `json:"memory_mib"`
	OS         string            `json:"os"`   // as GOOS
	Arch       string            `json:"arch"` // as GOARCH
	Kernel     string            `json:"kernel"`
	Filesystem string            `json:"filesystem"` // of the database
	Versions   map[string]string `json:"versions"`   // go, postgres, ffmpeg, node, …
}

// SustainedShare is the least share of completed tasks of a system that sustains a rate. The rest
// is chance: tasks are in progress at the start and at the end. Below it, latency is that of a
// growing queue.
const SustainedShare = 0.99

// Key identifies a figure.
type Key struct{ Scenario, System, Case string }

// String returns scenario/system/case.
func (k Key) String() string {
	return strings.TrimSuffix(k.Scenario+"/"+k.System+"/"+k.Case, "/")
}

// Figure is a quantity with its value in every round.
type Figure struct {
	Scenario string  `json:"scenario"`       // "e2e"
	System   string  `json:"contestant"`     // "cuelight", "river_tx", "floor"
	Case     string  `json:"case,omitempty"` // "rate=400"
	Unit     string  `json:"unit"`           // "ms", "tasks/s", "MiB", "queries/s", …
	Lower    bool    `json:"lower_is_better"`
	Rounds   []Round `json:"rounds"`
}

// Key returns the key of the figure.
func (f *Figure) Key() Key { return Key{f.Scenario, f.System, f.Case} }

// New returns a result that starts now.
func New(mode string) *Result {
	return &Result{
		Format:    Format,
		StartedAt: time.Now().UTC().Truncate(time.Second),
		Mode:      mode,
		Commit:    unknown,
		Settings:  map[string]string{},
		Skipped:   map[string]string{},
	}
}

// Add adds rounds to a figure and creates it if necessary. The unit decides whether lower
// values are better: higher ones are for "tasks/s" and for units that start with "share",
// except "share of a core". Add skips rounds without a valid number, with a reason in Skipped.
func (r *Result) Add(k Key, unit string, rounds ...Round) {
	for _, round := range rounds {
		if !round.isValid() {
			r.Skip(k.String(), "a round without a valid number")
			continue
		}
		f := r.figure(k)
		if f == nil {
			r.Figures = append(r.Figures, Figure{
				Scenario: k.Scenario, System: k.System, Case: k.Case, Unit: unit, Lower: isLowerBetter(unit),
			})
			f = &r.Figures[len(r.Figures)-1]
		}
		if f.Unit != unit {
			r.Skip(k.String(), fmt.Sprintf("a round in %q, but others are in %q", unit, f.Unit))
			continue
		}
		f.Rounds = append(f.Rounds, round)
	}
}

func isLowerBetter(unit string) bool {
	return unit != "tasks/s" && (!strings.HasPrefix(unit, "share") || unit == "share of a core")
}

// Skip records why a scenario, a system or a figure was not measured. It appends a further
// reason unless it is known.
func (r *Result) Skip(name, reason string) {
	if r.Skipped == nil {
		r.Skipped = map[string]string{}
	}
	switch before := r.Skipped[name]; {
	case before == "":
		r.Skipped[name] = reason
	case !slices.Contains(strings.Split(before, "; "), reason):
		r.Skipped[name] = before + "; " + reason
	}
}

func (r *Result) figure(k Key) *Figure {
	i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Key() == k })
	if i < 0 {
		return nil
	}
	return &r.Figures[i]
}

// Find returns a figure if it was measured. The pointer is valid until the next Add.
func (r *Result) Find(k Key) (*Figure, bool) {
	f := r.figure(k)
	return f, f != nil && len(f.Rounds) > 0
}

// ForScenario returns the figures of a scenario, sorted by the first appearance of their system
// and then of their case.
func (r *Result) ForScenario(scenario string) []*Figure {
	var all []*Figure
	var systems, cases []string
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Scenario == scenario && len(f.Rounds) > 0 {
			all, systems, cases = append(all, f), append(systems, f.System), append(cases, f.Case)
		}
	}
	slices.SortStableFunc(all, func(a, b *Figure) int {
		return cmp.Or(
			cmp.Compare(slices.Index(systems, a.System), slices.Index(systems, b.System)),
			cmp.Compare(slices.Index(cases, a.Case), slices.Index(cases, b.Case)))
	})
	return all
}

// Step is a figure at one value of a parameter.
type Step struct {
	Value float64
	*Figure
}

// Steps returns the figures of a system whose case is a number of the parameter, such as
// "rate=50" and "rate=400", sorted by that number.
func (r *Result) Steps(scenario, system, parameter string) []Step {
	var steps []Step
	for _, f := range r.ForScenario(scenario) {
		text, ok := strings.CutPrefix(f.Case, parameter+"=")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil && f.System == system {
			steps = append(steps, Step{value, f})
		}
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Value, b.Value) })
	return steps
}
