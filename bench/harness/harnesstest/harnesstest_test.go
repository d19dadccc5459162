package harnesstest

import (
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

func TestCheckOrder_FindsStagesOutOfOrder(t *testing.T) {
	t.Parallel()
	const publish = 3 * int(harness.Publish) // its first observation, of task 0
	for name, c := range map[string]struct {
		change func([]harness.Observation)
		want   string
	}{
		"none":      {func([]harness.Observation) {}, ""},
		"too early": {func(o []harness.Observation) { o[publish].At = o[0].At }, "publish of task 0 started before assemble had ended"},
		"ended before it started": {
			func(o []harness.Observation) { o[publish].At = o[publish+2].At }, "publish of task 0 ended before it started",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := harness.NewRecorder(taskCount)
			all := correctObservations()
			c.change(all)
			for _, o := range all {
				r.Observe(o)
			}
			if err := checkOrder(r); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// correctObservations returns the observations of a correct run.
func correctObservations() []harness.Observation {
	var all []harness.Observation
	at := time.Now()
	for task := range int64(taskCount) {
		for s := range harness.Stage(harness.StageCount) {
			for kind := harness.Started; kind <= harness.Completed; kind++ {
				at = at.Add(time.Millisecond)
				all = append(all, harness.Observation{Task: task, Stage: s, Kind: kind, At: at})
			}
		}
	}
	return all
}
