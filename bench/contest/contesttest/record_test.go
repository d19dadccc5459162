package contesttest

import (
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/contest"
)

// right is what happens when all is well.
func right() []contest.Moment {
	var all []contest.Moment
	at := time.Now()
	for task := range int64(tasks) {
		for s := range contest.Stage(contest.Stages) {
			for _, w := range []contest.What{contest.Began, contest.Ended, contest.Completed} {
				at = at.Add(time.Millisecond)
				all = append(all, contest.Moment{Task: task, Stage: s, What: w, At: at})
			}
		}
	}
	return all
}

func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	const publish = 3 * int(contest.Publish) // its first moment, of task 0
	for name, c := range map[string]struct {
		change func([]contest.Moment) []contest.Moment
		want   string
	}{
		"none": {func(m []contest.Moment) []contest.Moment { return m }, ""},
		"twice": {
			func(m []contest.Moment) []contest.Moment { return append(m, m[publish]) },
			"publish of task 0 began 2 times",
		},
		"never": {
			func(m []contest.Moment) []contest.Moment { return append(m[:publish+2], m[publish+3:]...) },
			"publish of task 0 was completed 0 times",
		},
		"too early": {
			func(m []contest.Moment) []contest.Moment {
				m[publish].At = m[0].At
				return m
			},
			"publish of task 0 began before assemble had ended",
		},
		"backwards": {
			func(m []contest.Moment) []contest.Moment {
				m[publish].At = m[publish+2].At
				return m
			},
			"publish of task 0 ended before it began",
		},
		"another task": {
			func(m []contest.Moment) []contest.Moment { return append(m, contest.Moment{Task: tasks}) },
			"ingest of task 20, which nobody submitted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecord(tasks)
			for _, m := range c.change(right()) {
				r.observe(m)
			}
			var text string
			for _, err := range r.faults() {
				text += err.Error() + "\n"
			}
			if c.want == "" && text != "" || !strings.Contains(text, c.want) {
				t.Errorf("faults are %q, want %q", text, c.want)
			}
		})
	}
}

func TestWaitReturnsWithTheLastCompletion(t *testing.T) {
	t.Parallel()
	r := newRecord(tasks)
	all := right()
	last := all[len(all)-1]
	for _, m := range all[:len(all)-1] {
		r.observe(m)
	}
	select {
	case <-r.done:
		t.Fatal("one is missing")
	default:
	}
	r.observe(last)
	if err := r.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}
