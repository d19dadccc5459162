package ui

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// A stage that is claimed with what it needs begins, by the clock of its
// transaction, a moment before that was completed.
func TestStageThatWasClaimedWithWhatItNeedsDidNotWait(t *testing.T) {
	t.Parallel()
	l := newLayout(store.Video())
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	task := store.Task{CreatedAt: began}
	for _, name := range store.Video().Stages() {
		task.Stages = append(task.Stages, store.StageState{Name: name, Status: store.StatusCompleted})
	}
	history := []store.Attempt{
		{Stage: "ingest", Outcome: "completed", StartedAt: at(100), FinishedAt: at(1001)},
		{Stage: "transcode", Outcome: "completed", StartedAt: at(1000), FinishedAt: at(5000)},
		{Stage: "metadata", Outcome: "completed", StartedAt: at(1500), FinishedAt: at(2000)},
	}
	waits := func(stage int) (total time.Duration) {
		for _, b := range l.bars(task, stage, history, nil, at(9000)) {
			if b.Kind == "wait" {
				total += b.to.Sub(b.from)
			}
		}
		return total
	}
	for stage, want := range []time.Duration{100 * time.Millisecond, 0, 499 * time.Millisecond} {
		if got := waits(stage); got != want {
			t.Errorf("%s waited for %s, want %s", history[stage].Stage, got, want)
		}
	}
}

func TestTaskIsCalledWhatItsSubmitterCallsIt(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		`{"title": "Holiday"}`: "Holiday", `{}`: "source.mp4", `{"title": 3}`: "source.mp4", `{"title": ""}`: "source.mp4", "{\"title\": \"a\u202eb\"}": "a\uFFFDb",
	} {
		if got := called(store.Task{Source: "/srv/uploads/1/source.mp4", Params: []byte(params)}); got != want {
			t.Errorf("%s is called %q, want %q", params, got, want)
		}
	}
}
