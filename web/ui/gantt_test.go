package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// The transaction that completes a stage and claims the next one has one start time,
// shortly before the completion.
func TestGantt_ShowsNoWaitForAClaimInTheCompletingTransaction(t *testing.T) {
	t.Parallel()
	l := newPipelineLayout(store.Video())
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	task := store.Task{CreatedAt: start}
	for _, name := range store.Video().Stages() {
		task.Stages = append(task.Stages, store.StageState{Name: name, Status: store.StatusCompleted})
	}
	history := []store.Attempt{
		{Stage: "ingest", Outcome: "completed", StartedAt: at(100), FinishedAt: at(1001)},
		{Stage: "transcode", Outcome: "completed", StartedAt: at(1000), FinishedAt: at(5000)},
		{Stage: "metadata", Outcome: "completed", StartedAt: at(1500), FinishedAt: at(2000)},
	}
	waits := func(stage int) (total time.Duration) {
		for _, b := range l.bars(task, stage, history, current{}, at(9000)) {
			if b.Kind == "wait" {
				total += b.to.Sub(b.from)
			}
		}
		return total
	}
	for stage, want := range []time.Duration{100 * time.Millisecond, 0, 499 * time.Millisecond} {
		if got := waits(stage); got != want {
			t.Errorf("%s was ready for %s, want %s", history[stage].Stage, got, want)
		}
	}
}

func TestGantt_ShowsWhenAStageWasReady(t *testing.T) {
	t.Parallel()
	l := newPipelineLayout(store.Video())
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	retry := func(s int) *time.Time { x := at(s); return &x }
	attempt := func(outcome string, from, to int, retryAt *time.Time) store.Attempt {
		return store.Attempt{Stage: "ingest", Outcome: outcome, StartedAt: at(from), FinishedAt: at(to), RetryAt: retryAt}
	}
	for name, c := range map[string]struct {
		history []store.Attempt
		status  store.Status
		want    string
	}{
		"no attempts": {nil, store.StatusPending, "wait 0-100"},
		"delay before a retry": {
			[]store.Attempt{attempt("failed", 1, 2, retry(30)), attempt("failed", 31, 32, retry(200))},
			store.StatusFailed, "wait 0-1 failed 1-2 rest 2-30 wait 30-31 failed 31-32 rest 32-100",
		},
		"retried before the delay ended": {
			[]store.Attempt{attempt("failed", 1, 2, retry(30)), attempt("completed", 5, 6, nil)}, store.StatusCompleted,
			"wait 0-1 failed 1-2 rest 2-5 completed 5-6",
		},
		"dead, retried later": {
			[]store.Attempt{attempt("failed", 1, 2, nil), attempt("completed", 60, 61, nil)}, store.StatusCompleted,
			"wait 0-1 failed 1-2 completed 60-61",
		},
		"dead": {
			[]store.Attempt{attempt("failed", 1, 2, nil)}, store.StatusDead, "wait 0-1 failed 1-2",
		},
		"worker lost": {
			[]store.Attempt{attempt("expired", 1, 20, retry(20)), attempt("completed", 22, 30, nil)},
			store.StatusCompleted, "wait 0-1 expired 1-20 wait 20-22 completed 22-30",
		},
		"released": {
			[]store.Attempt{attempt("released", 1, 2, nil)}, store.StatusPending, "wait 0-1 released 1-2 wait 2-100",
		},
		"cancelled, retried later": {
			[]store.Attempt{attempt("cancelled", 1, 2, nil), attempt("completed", 50, 51, nil)}, store.StatusCompleted,
			"wait 0-1 cancelled 1-2 completed 50-51",
		},
	} {
		task := store.Task{CreatedAt: start}
		for _, stage := range store.Video().Stages() {
			task.Stages = append(task.Stages, store.StageState{Name: stage, Status: store.StatusPending})
		}
		task.Stages[0].Status = c.status
		var got []string
		for _, b := range l.bars(task, 0, c.history, current{}, at(100)) {
			got = append(got, fmt.Sprintf("%s %.0f-%.0f", b.Kind, b.from.Sub(start).Seconds(), b.to.Sub(start).Seconds()))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

func TestTickText_UsesTheLargestWholeUnit(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		200 * time.Millisecond: "200 ms", 1500 * time.Millisecond: "1.5 s", 2 * time.Second: "2 s",
		90 * time.Second: "1 m 30 s", 2 * time.Hour: "2 h",
	} {
		if got := tickText(d); got != want {
			t.Errorf("%s is formatted as %q, want %q", d, got, want)
		}
	}
}
