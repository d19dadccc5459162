package scenario

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/bench/result"
)

// Parts compares the time that each of n parts of one task takes with that of each of n tasks: "parts".
// It records how many times as long a part takes, without and with the submission of the tasks.
func Parts(n int) Scenario {
	return Scenario{Names: []string{"parts"}, Measure: func(ctx context.Context, t *Trial) error {
		if t.System.PartTimes == nil {
			return errNotSupported
		}
		times, err := t.System.PartTimes(ctx, t.URL, n, t.Slots)
		if err != nil {
			return err
		}
		for _, unit := range []string{"task", "part", "task submission"} {
			t.Record("parts", fmt.Sprintf("each %s of %d", unit, n), "ms", result.FromValue(result.Milliseconds(times[unit])))
		}
		t.Record("parts", "ratio", "times", result.FromValue(times["part"].Seconds()/times["task"].Seconds()))
		withSubmission := func(unit string) float64 { return (times[unit] + times[unit+" submission"]).Seconds() }
		t.Record("parts", "ratio with submission", "times", result.FromValue(withSubmission("part")/withSubmission("task")))
		return nil
	}}
}
