package ui

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// A stage that is claimed with what it needs begins, by the clock of its
// transaction, a moment before that was completed.
func TestStageThatWasClaimedWithWhatItNeedsDidNotWait(t *testing.T) {
	t.Parallel()
	l := newPipelineLayout(store.Video())
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

func TestWaitsAreWhereTheStageCouldHaveBegun(t *testing.T) {
	t.Parallel()
	l := newPipelineLayout(store.Video())
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	retry := func(s int) *time.Time { x := at(s); return &x }
	tried := func(outcome string, from, to int, retryAt *time.Time) store.Attempt {
		return store.Attempt{Stage: "ingest", Outcome: outcome, StartedAt: at(from), FinishedAt: at(to), RetryAt: retryAt}
	}
	for name, c := range map[string]struct {
		history []store.Attempt
		status  store.Status
		want    string
	}{
		"nothing yet":                {nil, store.StatusPending, "wait 0-100"},
		"a pause before a retry":     {[]store.Attempt{tried("failed", 1, 2, retry(30)), tried("failed", 31, 32, retry(200))}, store.StatusFailed, "wait 0-1 failed 1-2 rest 2-30 wait 30-31 failed 31-32 rest 32-100"},
		"retried before it was due":  {[]store.Attempt{tried("failed", 1, 2, retry(30)), tried("completed", 5, 6, nil)}, store.StatusCompleted, "wait 0-1 failed 1-2 rest 2-5 completed 5-6"},
		"dead, and taken up again":   {[]store.Attempt{tried("failed", 1, 2, nil), tried("completed", 60, 61, nil)}, store.StatusCompleted, "wait 0-1 failed 1-2 completed 60-61"},
		"dead":                       {[]store.Attempt{tried("failed", 1, 2, nil)}, store.StatusDead, "wait 0-1 failed 1-2"},
		"lost with its worker":       {[]store.Attempt{tried("expired", 1, 20, retry(20)), tried("completed", 22, 30, nil)}, store.StatusCompleted, "wait 0-1 expired 1-20 wait 20-22 completed 22-30"},
		"given back":                 {[]store.Attempt{tried("released", 1, 2, nil)}, store.StatusPending, "wait 0-1 released 1-2 wait 2-100"},
		"cancelled, and again later": {[]store.Attempt{tried("cancelled", 1, 2, nil), tried("completed", 50, 51, nil)}, store.StatusCompleted, "wait 0-1 cancelled 1-2 completed 50-51"},
	} {
		task := store.Task{CreatedAt: began}
		for _, stage := range store.Video().Stages() {
			task.Stages = append(task.Stages, store.StageState{Name: stage, Status: store.StatusPending})
		}
		task.Stages[0].Status = c.status
		var got []string
		for _, b := range l.bars(task, 0, c.history, nil, at(100)) {
			got = append(got, fmt.Sprintf("%s %.0f-%.0f", b.Kind, b.from.Sub(began).Seconds(), b.to.Sub(began).Seconds()))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

func TestTicksAreRoundInTheUnitOfASecond(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		200 * time.Millisecond: "200 ms", 1500 * time.Millisecond: "1.5 s", 2 * time.Second: "2 s", 90 * time.Second: "1 m 30 s", 2 * time.Hour: "2 h",
	} {
		if got := tickText(d); got != want {
			t.Errorf("%s is told as %q, want %q", d, got, want)
		}
	}
}

// A note has a number at its end that is of no use to people.
func TestProgressIsToldWithoutTheCountOfSteps(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]string{"probing 3": "probing", "probing": "probing", "": "", "h264": "h264"} {
		if got := progressText(store.Running{Percent: -1, Note: note}); got != want {
			t.Errorf("%q is told as %q, want %q", note, got, want)
		}
	}
}

func TestWhatIsNoFilterIsNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked url.Values
		want  boardFilters
	}{
		{url.Values{"only": {"nonsense"}, "after": {"nonsense"}, "status": {"a\x00b"}, "q": {" \x00x\xff "}}, boardFilters{Text: "x"}},
		{url.Values{"only": {"dead"}}, boardFilters{Only: "dead"}},
		{url.Values{"status": {"dead"}}, boardFilters{}}, // of no stage
		{url.Values{"stage": {"ingest"}, "status": {"dead"}}, boardFilters{Stage: "ingest", Status: "dead"}},
		// What the form shows where it is not said.
		{url.Values{"stage": {"ingest"}}, boardFilters{Stage: "ingest", Status: "pending"}},
		{url.Values{"stage": {"ingest"}, "status": {"nonsense"}}, boardFilters{Stage: "ingest", Status: "pending"}},
	} {
		if got := readFilters(c.asked); got != c.want {
			t.Errorf("%v is read as %+v, want %+v", c.asked, got, c.want)
		}
	}
}

func TestChoiceKeepsTheOtherConditions(t *testing.T) {
	t.Parallel()
	f := readFilters(url.Values{"only": {"running"}, "q": {"norway"}, "order": {"oldest"}, "after": {"01a1f897-3d3a-79a9-8ad1-302c5e8ba6ae"}})
	links := make(map[string]string)
	for _, tab := range f.tabs("/below") {
		links[tab.Word] = tab.Link
		if tab.Here != (tab.Word == "Running") {
			t.Errorf("%s is where one is: %t", tab.Word, tab.Here)
		}
	}
	if links["Dead"] != "/below/?only=dead&order=oldest&q=norway" || links["All"] != "/below/?order=oldest&q=norway" || links["Cancelled"] == "" {
		t.Errorf("links are %v", links)
	}
}

func TestTaskIsCalledWhatItsSubmitterCallsIt(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		`{"title": "Holiday"}`: "Holiday", `{}`: "source.mp4", `{"title": 3}`: "source.mp4", `{"title": ""}`: "source.mp4", "{\"title\": \"a\u202eb\"}": "a\uFFFDb",
	} {
		if got := videoTitle(store.Task{Source: "/srv/uploads/1/source.mp4", Params: []byte(params)}); got != want {
			t.Errorf("%s is called %q, want %q", params, got, want)
		}
	}
}

func TestFactsHaveTheWarningsOfEveryStageOnce(t *testing.T) {
	t.Parallel()
	result := func(stage, text string) store.Attempt {
		return store.Attempt{Stage: stage, Outcome: "completed", Result: []byte(text)}
	}
	got := readVideoDetails([]store.Attempt{
		result("ingest", `{"info": {"warnings": ["odd header"]}, "warnings": ["odd header"]}`),
		result("transcode", `{"output": {"warnings": ["damaged"]}, "warnings": ["damaged"]}`),
	}).Warnings
	if want := "[odd header damaged]"; fmt.Sprint(got) != want {
		t.Errorf("warnings %q, want %s", got, want)
	}
}
