// Package result is what a benchmark run finds out: figures with their raw
// values, and the machine and settings they belong to. A [Result] is written as
// JSON; everything else — the report, its plots, the lines for benchstat, the
// summary line — is made from it, so that nothing is said which is not in it.
//
//	r := result.New("quick")
//	r.Commit = result.Commit(ctx, ".")
//	r.Machine = result.ThisMachine(ctx, databaseDir, result.Programs())
//	r.Add(result.Key{Scenario: "e2e", Contestant: "cuelight", Case: "idle"}, "ms", result.OfDurations(latencies))
//	r.Add(result.Key{Scenario: "drain", Contestant: "cuelight", Case: "tasks=5000"}, "tasks/s", result.Value(21_000))
//	path, err := r.Write("bench/results")
//
// A figure gathers its rounds by being added to under the same key. A figure
// that was not measured is not there: [Result.Find] says so, and nothing
// stands in for it.
//
// The package measures nothing but the machine, and compares no results with
// one another: that is for benchstat, with the file of [Result.WriteBenchmarks].
package result

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format is the version of the JSON.
const Format = 1

// Result is one run of the benchmark. It is for one goroutine at a time.
type Result struct {
	Format          int       `json:"format"`
	StartedAt       time.Time `json:"at"`
	DurationSeconds float64   `json:"took_s"`
	Mode            string    `json:"mode"`   // "full", "quick" or "once"
	Commit          string    `json:"commit"` // of Cuelight; with "-dirty" where there was more
	Machine         Machine   `json:"machine"`

	// Settings are, by contestant, how it was set up; and what was set in
	// PostgreSQL under "postgres".
	Settings map[string]string `json:"settings"`

	Figures []Figure `json:"figures"`

	// Skipped says, by scenario or contestant, why it was not measured.
	Skipped map[string]string `json:"skipped,omitempty"`
}

// Machine is what it ran on.
type Machine struct {
	CPU        string            `json:"cpu"`
	Cores      int               `json:"cores"` // that this process may use
	MemoryMiB  int               `json:"memory_mib"`
	OS         string            `json:"os"`   // as in GOOS
	Arch       string            `json:"arch"` // as in GOARCH
	Kernel     string            `json:"kernel"`
	Filesystem string            `json:"filesystem"` // of the database
	Versions   map[string]string `json:"versions"`   // go, postgres, ffmpeg, node, …
}

// Key names a figure.
type Key struct{ Scenario, System, Case string }

// String is the key as scenario/contestant/case.
func (k Key) String() string {
	return strings.TrimSuffix(k.Scenario+"/"+k.System+"/"+k.Case, "/")
}

// Figure is one thing that was measured, in every round.
type Figure struct {
	Scenario string `json:"scenario"`       // "e2e"
	System   string `json:"contestant"`     // "cuelight", "river_tx", "floor"
	Case     string `json:"case,omitempty"` // "rate=400"
	Unit     string `json:"unit"`           // "ms", "tasks/s", "MiB", "queries/s", …
	Lower    bool   `json:"lower_is_better"`

	// Rounds has one value per round, or one spread of many samples.
	Rounds []Round `json:"rounds"`
}

// Key is the figure's name.
func (f *Figure) Key() Key { return Key{f.Scenario, f.System, f.Case} }

// Round is what one round found.
type Round struct {
	Value   float64   `json:"value"`             // the figure; of samples their median
	Samples []float64 `json:"samples,omitempty"` // sorted; see [Of]
	N       int       `json:"n,omitempty"`       // how many samples there were; more than are kept, maybe
}

// New begins a result, now.
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

// Add puts rounds to the figure of this name, which it makes if it is the
// first. Whether less is better follows from the unit: of "tasks/s" and of what
// begins with "share" (of the ideal, of what was offered) more is, except for
// "share of a core"; of everything else less. A figure for which that is wrong
// is set right with [Result.Find].
//
// A round that found nothing, or something that is not a number, is left out,
// and Skipped says so.
func (r *Result) Add(k Key, unit string, rounds ...Round) {
	for _, round := range rounds {
		if !round.found() {
			r.Skip(k.String(), "a round without a finding")
			continue
		}
		f := r.figure(k)
		if f == nil {
			r.Figures = append(r.Figures, Figure{
				Scenario: k.Scenario, System: k.System, Case: k.Case,
				Unit: unit, Lower: lowerIsBetter(unit),
			})
			f = &r.Figures[len(r.Figures)-1]
		}
		if f.Unit != unit {
			r.Skip(k.String(), fmt.Sprintf("a round in %q, while others are in %q", unit, f.Unit))
			continue
		}
		f.Rounds = append(f.Rounds, round)
	}
}

func lowerIsBetter(unit string) bool {
	return unit != "tasks/s" && (!strings.HasPrefix(unit, "share") || unit == "share of a core")
}

// Skip writes down why something was not measured: a scenario, a contestant, or
// a key as text. A second reason is put to the first, unless it is the same.
func (r *Result) Skip(what, reason string) {
	if r.Skipped == nil {
		r.Skipped = map[string]string{}
	}
	switch before := r.Skipped[what]; {
	case before == "":
		r.Skipped[what] = reason
	case !slices.Contains(strings.Split(before, "; "), reason):
		r.Skipped[what] = before + "; " + reason
	}
}

func (r *Result) figure(k Key) *Figure {
	for i := range r.Figures {
		if r.Figures[i].Key() == k {
			return &r.Figures[i]
		}
	}
	return nil
}

// Find is the figure of this name, if it was measured. It points into the
// result until the next Add.
func (r *Result) Find(k Key) (*Figure, bool) {
	f := r.figure(k)
	return f, f != nil && len(f.Rounds) > 0
}

// Of are the figures of a scenario, in the order of their contestants' and
// cases' first appearance in it.
func (r *Result) ForScenario(scenario string) []*Figure {
	var all []*Figure
	var contestants, cases []string
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Scenario != scenario || len(f.Rounds) == 0 {
			continue
		}
		all = append(all, f)
		contestants = append(contestants, f.System)
		cases = append(cases, f.Case)
	}
	slices.SortStableFunc(all, func(a, b *Figure) int {
		return cmp.Or(
			cmp.Compare(slices.Index(contestants, a.System), slices.Index(contestants, b.System)),
			cmp.Compare(slices.Index(cases, a.Case), slices.Index(cases, b.Case)))
	})
	return all
}

// Steps are the figures of a contestant in a scenario whose case is the
// parameter with a number, "rate=50" and "rate=400", the smallest number first.
func (r *Result) Steps(scenario, contestant, parameter string) []Step {
	var steps []Step
	for _, f := range r.ForScenario(scenario) {
		if f.System != contestant {
			continue
		}
		if at, ok := number(f.Case, parameter); ok {
			steps = append(steps, Step{Value: at, Figure: f})
		}
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Value, b.Value) })
	return steps
}

// Step is a figure at one value of a parameter.
type Step struct {
	Value float64
	*Figure
}

// number reads the parameter's number in a case.
func number(c, parameter string) (float64, bool) {
	text, ok := strings.CutPrefix(c, parameter+"=")
	if !ok {
		return 0, false
	}
	at, err := strconv.ParseFloat(text, 64)
	return at, err == nil
}
