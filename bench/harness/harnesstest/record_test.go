package harnesstest

import (
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// correctObservations returns the observations of a correct run.
func correctObservations() []harness.Observation {
	var all []harness.Observation
	at := time.Now()
	for task := range int64(taskCount) {
		for s := range harness.Stage(harness.StageCount) {
			for _, w := range []harness.Kind{harness.Started, harness.Ended, harness.Completed} {
				at = at.Add(time.Millisecond)
				all = append(all, harness.Observation{Task: task, Stage: s, Kind: w, At: at})
			}
		}
	}
	return all
}

func TestRecord_ReportsFaults(t *testing.T) {
	t.Parallel()
	const publish = 3 * int(harness.Publish) // its first observation, of task 0
	for name, c := range map[string]struct {
		change func([]harness.Observation) []harness.Observation
		want   string
	}{
		"none": {func(m []harness.Observation) []harness.Observation { return m }, ""},
		"twice": {
			func(m []harness.Observation) []harness.Observation { return append(m, m[publish]) },
			"publish of task 0 started 2 times",
		},
		"never": {
			func(m []harness.Observation) []harness.Observation { return append(m[:publish+2], m[publish+3:]...) },
			"publish of task 0 was completed 0 times",
		},
		"too early": {
			func(m []harness.Observation) []harness.Observation {
				m[publish].At = m[0].At
				return m
			},
			"publish of task 0 started before assemble had ended",
		},
		"out of order": {
			func(m []harness.Observation) []harness.Observation {
				m[publish].At = m[publish+2].At
				return m
			},
			"publish of task 0 ended before it started",
		},
		"unknown task": {
			func(m []harness.Observation) []harness.Observation {
				return append(m, harness.Observation{Task: taskCount})
			},
			"ingest of unknown task 20",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecord(taskCount)
			for _, m := range c.change(correctObservations()) {
				r.observe(m)
			}
			var text string
			for _, fault := range r.faults() {
				text += fault + "\n"
			}
			if c.want == "" && text != "" || !strings.Contains(text, c.want) {
				t.Errorf("faults are %q, want %q", text, c.want)
			}
		})
	}
}

func TestRecord_WaitReturnsAfterTheLastCompletion(t *testing.T) {
	t.Parallel()
	r := newRecord(taskCount)
	all := correctObservations()
	last := all[len(all)-1]
	for _, m := range all[:len(all)-1] {
		r.observe(m)
	}
	select {
	case <-r.done:
		t.Fatal("wait ended before the last completion")
	default:
	}
	r.observe(last)
	if err := r.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}
