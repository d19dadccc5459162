package report

import (
	"encoding/json"
	"strconv"

	"github.com/cuelight/cuelight/bench/result"
)

// line is what programs read; its order is theirs. Null is not measured.
type line struct {
	Floor5     *float64 `json:"floor5_ms"`
	P50        *float64 `json:"e2e_p50_ms"`
	P99        *float64 `json:"e2e_p99_ms"`
	Hop        *float64 `json:"hop_p50_ms"`
	HopOther   *float64 `json:"hop_other_process_p99_ms"`
	Tasks      *float64 `json:"tasks_per_s"`
	River      *float64 `json:"river_e2e_p50_ms"`
	RiverTasks *float64 `json:"river_tasks_per_s"`
	FastTasks  *float64 `json:"river_fast_tasks_per_s"`
	Polling    *float64 `json:"polling_e2e_p50_ms"`
	Notifies   *float64 `json:"notifies_per_task"`
	Grown      *float64 `json:"grown_ratio"`
}

// Summary is the run in one line of JSON, without the line's end: medians over
// the rounds. The keys are always the same, in the same order, and null is what
// was not measured:
//
//   - floor5_ms is five dependent commits, e2e_… a task through the five stages,
//     both on an idle system; river_… is the form that inserts the next jobs in
//     the completing transaction, polling_… every 5 s.
//   - hop_p50_ms is from the end of a stage's work until the next one's begins,
//     hop_other_process_p99_ms the same from its completion, in another process.
//   - tasks_per_s are those of the largest number of waiting tasks that the
//     contestant was given.
//   - grown_ratio is tasks/s with the largest number of finished tasks by those
//     with none.
func Summary(r *result.Result) []byte {
	l := line{
		Floor5:     at(50)(idle(r, "commits5", floor)),
		P50:        at(50)(idle(r, "e2e", ours)),
		P99:        at(99)(idle(r, "e2e", ours)),
		Hop:        at(50)(idle(r, "hop", ours)),
		HopOther:   at(99)(idle(r, "hop_other", ours)),
		Tasks:      at(50)(largest(r, "drain", ours, "tasks")),
		River:      at(50)(idle(r, "e2e", "river_tx")),
		RiverTasks: at(50)(largest(r, "drain", "river_tx", "tasks")),
		FastTasks:  at(50)(largest(r, "drain", "river_fast", "tasks")),
		Polling:    at(50)(idle(r, "e2e", "polling_5s")),
		Notifies:   at(50)(findFigure(r, "notifies", ours)),
	}
	if steps := r.Steps("grown", ours, "finished"); len(steps) > 1 && steps[0].Value == 0 {
		if ratio, ok := result.Ratio(steps[len(steps)-1].Figure, 50, steps[0].Figure, 50); ok {
			l.Grown = rounded(ratio.Median)
		}
	}
	data, err := json.Marshal(l)
	if err != nil {
		panic(err) // a result has no number that JSON has not
	}
	return data
}

func at(p float64) func(*result.Figure, bool) *float64 {
	return func(f *result.Figure, ok bool) *float64 {
		if !ok || !isPercentileSupported(f, p) {
			return nil
		}
		return rounded(f.Percentile(p).Median)
	}
}

// rounded keeps four digits: more than any of these figures is exact to.
func rounded(v float64) *float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return &v
}
