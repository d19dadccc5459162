package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// states are tasks in every state that a list may ask for, as the columns that differ
// from those of a new one.
var states = []string{
	"", "ingest_run_at = 'tomorrow'",
	"ingest_status = 'failed', ingest_attempts = 1, ingest_run_at = 'tomorrow'", "ingest_status = 'failed', ingest_attempts = 1",
	"ingest_run_at = 'tomorrow', ready_at = created_at", // it was claimed, and put off
	"ingest_status = 'inprogress', ingest_token = cuelight_id(), ingest_locked_at = now(), ingest_locked_by = cuelight_id()",
	"ingest_status = 'completed'", "ingest_status = 'completed', transcode_run_at = 'tomorrow'",
	"ingest_status = 'completed', transcode_status = 'failed', transcode_run_at = 'tomorrow'",
	"ingest_status = 'completed', transcode_status = 'dead'", "ingest_status = 'completed', transcode_status = 'dead', metadata_status = 'failed'",
	"ingest_status = 'completed', transcode_status = 'cancelled', metadata_status = 'cancelled', assemble_status = 'cancelled', publish_status = 'cancelled'",
	"ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed'",
	"ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed', assemble_status = 'completed', publish_status = 'failed'",
	"ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed', assemble_status = 'completed', publish_status = 'completed'",
	"ingest_status = 'dead', overridden_by = (select id from tasks order by id limit 1), transcode_status = 'cancelled', metadata_status = 'cancelled', assemble_status = 'cancelled', publish_status = 'cancelled'",
}

// variety submits so many tasks, each in a state that is drawn, and returns them all,
// the newest first.
func (b bundle) variety(n int, random *rand.Rand) []store.Task {
	b.t.Helper()
	b.exec("alter table tasks disable trigger user")
	for range n {
		id := b.submission(store.Submission{
			Source: fmt.Sprintf("/%d.mp4", random.IntN(10)), Priority: int16(random.IntN(4) - 1), UserID: []string{"", "ann", "bob"}[random.IntN(3)],
		})
		if state := states[random.IntN(len(states))]; state != "" {
			b.exec("update tasks set "+state+" where id = $1", id)
		}
	}
	b.exec("alter table tasks enable trigger user")
	tasks, err := b.List(b.t.Context(), store.ListQuery{Filter: store.Filter{Limit: n + 1}})
	if err != nil || len(tasks) != n {
		b.t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	return tasks
}

// chooses says what a query is to find, by nothing but what a task is.
func chooses(q store.ListQuery, t store.Task) bool {
	any := func(is func(i int, s store.StageState) bool) bool {
		for i, s := range t.Stages {
			if is(i, s) {
				return true
			}
		}
		return false
	}
	status := func(want ...store.Status) bool {
		return any(func(_ int, s store.StageState) bool { return slices.Contains(want, s.Status) })
	}
	later := any(func(_ int, s store.StageState) bool { return s.RunAt != nil })
	ready := any(func(i int, s store.StageState) bool {
		return slices.Contains([]store.Status{pending, failing}, s.Status) && s.RunAt == nil && open(t, i)
	})
	stage, _ := store.Video().Stage(q.Stage)
	return (q.Status == "" || t.Status == q.Status) && (q.UserID == "" || t.UserID == q.UserID) &&
		(q.Source == "" || strings.Contains(t.Source, q.Source)) && (q.Stage == "" || t.Stages[stage].Status == q.StageStatus) &&
		map[store.StateFilter]bool{
			"": true, store.StateRunning: status(inprogress), store.StateWaiting: ready, store.StateDead: status(dead) && t.OverriddenBy.IsZero(),
			store.StateScheduled: t.Status == store.StatusScheduled,
			store.StateRetrying:  (status(failing) || later) && !status(dead, cancelled) && t.Status != store.StatusScheduled,
		}[q.State]
}

func open(t store.Task, stage int) bool {
	for i := range t.Stages {
		if slices.Contains(store.Video().Feeds(i), stage) && t.Stages[i].Status != done {
			return false
		}
	}
	return true
}

func TestPages_HaveWhatMatchesAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	all := b.variety(150, rand.New(rand.NewPCG(seed, 0)))
	queries := []store.ListQuery{{}}
	for _, only := range []store.StateFilter{store.StateRunning, store.StateWaiting, store.StateScheduled, store.StateRetrying, store.StateDead} {
		queries = append(queries, store.ListQuery{State: only})
	}
	for _, status := range []store.Status{pending, store.StatusScheduled, inprogress, done, failing, dead, cancelled} {
		queries = append(queries, store.ListQuery{Filter: store.Filter{Status: status}})
		if status != store.StatusScheduled {
			queries = append(queries, store.ListQuery{Filter: store.Filter{Stage: "transcode", StageStatus: status}})
		}
	}
	for _, q := range queries {
		for _, source := range []string{"", "7.mp4"} {
			for _, user := range []string{"", "ann"} {
				q.Source, q.UserID = source, user
				for _, q.Oldest = range []bool{false, true} {
					b.pages(all, q)
				}
			}
		}
	}
	strip, err := b.Stats(t.Context())
	must(t, err)
	for only, got := range map[store.StateFilter]int{
		store.StateRunning: strip.Running, store.StateWaiting: strip.Waiting, store.StateScheduled: strip.Scheduled,
		store.StateRetrying: strip.Retrying, store.StateDead: strip.Dead,
	} {
		want := 0
		for _, task := range all {
			if chooses(store.ListQuery{State: only}, task) {
				want++
			}
		}
		if got != want {
			t.Errorf("%d tasks are %s, want %d", got, only, want)
		}
	}
}

// pages holds all pages of a query against all tasks.
func (b bundle) pages(all []store.Task, q store.ListQuery) {
	b.t.Helper()
	var want, got []store.ID
	for _, task := range all {
		if chooses(q, task) {
			want = append(want, task.ID)
		}
	}
	if q.Oldest {
		slices.Reverse(want)
	}
	q.Limit = 7
	for {
		page, err := b.Page(b.t.Context(), q)
		must(b.t, err)
		got = append(got, ids(page.Tasks)...)
		if q.After = page.Next; q.After.IsZero() {
			break
		}
	}
	if !slices.Equal(got, want) {
		q.After = store.ID{}
		b.t.Errorf("%+v: got %d %v, want %d %v", q, len(got), got, len(want), want)
	}
}

// A condition without an index is looked for in so many tasks at once, and no page is
// said to be the last while there are more.
func TestPageOfASearch_EndsAfterSomeTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("alter table tasks disable trigger user")
	oldest := b.submission(store.Submission{Source: "/found.mp4"})
	b.exec("insert into tasks (source) select n::text from generate_series(1, $1) as n", store.MaxSearch+100)
	q := store.ListQuery{Filter: store.Filter{Source: "found", Limit: 10}}
	page, err := b.Page(t.Context(), q)
	if err != nil || len(page.Tasks) != 0 || page.Next.IsZero() {
		t.Fatalf("the first page has %d tasks, goes on after %s, %v", len(page.Tasks), page.Next, err)
	}
	q.After = page.Next
	if page, err = b.Page(t.Context(), q); err != nil || fmt.Sprint(ids(page.Tasks)) != fmt.Sprint([]store.ID{oldest}) || !page.Next.IsZero() {
		t.Errorf("the next page has %v, goes on after %s, %v", ids(page.Tasks), page.Next, err)
	}
	tasks, err := b.List(t.Context(), store.ListQuery{Filter: store.Filter{Source: "found"}})
	if err != nil || fmt.Sprint(ids(tasks)) != fmt.Sprint([]store.ID{oldest}) {
		t.Errorf("a list has %v, %v", ids(tasks), err)
	}
}

// A queue that is longer than is counted is estimated.
func TestStrip_EstimatesALongQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 2 * report.MaxCount
	b.exec("alter table tasks disable trigger user")
	b.exec("insert into tasks (source) select n::text from generate_series(1, $1) as n", n)
	b.exec("insert into tasks (source, ingest_run_at) select n::text, 'tomorrow' from generate_series(1, $1) as n", n)
	strip, err := b.Stats(t.Context())
	if err != nil || strip.Waiting < report.MaxCount || strip.Stages[0].Ready < report.MaxCount {
		t.Errorf("before the table was analyzed: %+v, %v", strip, err)
	}
	b.exec("analyze tasks")
	strip, err = b.Stats(t.Context())
	if err != nil || strip.Stages[0].Ready < n*9/10 || strip.Stages[0].Ready > n*11/10 || strip.Waiting != strip.Stages[0].Ready {
		t.Errorf("estimated is %+v, %v", strip, err)
	}
	if strip.Scheduled != report.MaxCount {
		t.Errorf("%d are scheduled, want %d", strip.Scheduled, report.MaxCount)
	}
}

func TestTaskThatWaitsForItsTime_IsScheduled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	id := b.submission(store.Submission{Source: "a.mp4", NotBefore: time.Now().Add(time.Hour)})
	is := func(want store.Status) {
		t.Helper()
		task, err := b.Get(t.Context(), id)
		var inSQL string
		must(t, b.pool.QueryRow(t.Context(), "select cuelight_video_status(t) from tasks t").Scan(&inSQL))
		if err != nil || task.Status != want || inSQL != string(want) {
			t.Errorf("it is %s, in SQL %s, %v; want %s", task.Status, inSQL, err, want)
		}
	}
	is(store.StatusScheduled)
	if strip, err := b.Stats(t.Context()); err != nil || strip.Scheduled != 1 || strip.Retrying+strip.Waiting != 0 || strip.Stages[0].OldestReady != 0 {
		t.Errorf("strip is %+v, %v", strip, err)
	}
	b.exec("update tasks set ingest_run_at = null")
	is(pending)
	b.turn(w, 0, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
	is(failing)
}

// postponed is a task of which the first claim was given back, to be made again in an
// hour.
func (b bundle) postponed(w store.ID, sub store.Submission) store.ID {
	b.t.Helper()
	id := b.submission(sub)
	if !sub.NotBefore.IsZero() {
		b.exec("update tasks set ingest_run_at = now() - interval '1 s' where id = $1", id)
	}
	in := turn(w, 1, nil, ingest)
	in.PromoteDue[ingest] = true
	out, err := b.Exchange(b.t.Context(), in)
	must(b.t, err)
	if len(out.Claims) != 1 || out.Claims[0].Task != id {
		b.t.Fatalf("claimed %+v, want %s", out.Claims, id)
	}
	r := failed(out.Claims[0], time.Hour)
	r.Outcome = engine.Released
	b.turn(w, 0, []engine.Report{r})
	return id
}

// A claim that was given back is no attempt, but the task waits for no time that it was
// submitted for.
func TestPostponedTask_IsNotScheduled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	tomorrow := time.Now().Add(24 * time.Hour)
	want := map[store.ID]store.Status{
		b.postponed(w, store.Submission{Source: "a.mp4"}):                      pending,
		b.postponed(w, store.Submission{Source: "b.mp4", NotBefore: tomorrow}): pending,
		b.submission(store.Submission{Source: "c.mp4", NotBefore: tomorrow}):   store.StatusScheduled,
	}
	has := func(when string, want map[store.ID]store.Status) {
		t.Helper()
		var all []store.Task
		for id, status := range want {
			task := b.get(id)
			var inSQL string
			must(t, b.pool.QueryRow(t.Context(), "select cuelight_video_status(t) from tasks t where id = $1", id).Scan(&inSQL))
			if s := task.Stages[ingest]; task.Status != status || inSQL != string(status) || s.Attempts != 0 {
				t.Errorf("%s, %s is %s, in SQL %s, after %d attempts; want %s", when, task.Source, task.Status, inSQL, s.Attempts, status)
			}
			all = append(all, task)
		}
		slices.SortFunc(all, func(a, b store.Task) int { return bytes.Compare(b.ID[:], a.ID[:]) })
		for _, only := range []store.StateFilter{store.StateScheduled, store.StateRetrying, store.StateWaiting} {
			b.pages(all, store.ListQuery{State: only})
		}
		for _, status := range []store.Status{store.StatusScheduled, pending, cancelled} {
			b.pages(all, store.ListQuery{Filter: store.Filter{Status: status}})
		}
	}
	counts := func(when string, scheduled, retrying, ready int) {
		t.Helper()
		if strip, err := b.Stats(t.Context()); err != nil || strip.Scheduled != scheduled || strip.Retrying != retrying || strip.Waiting != ready {
			t.Errorf("%s, strip is %+v, %v; want %d scheduled, %d retrying, %d waiting", when, strip, err, scheduled, retrying, ready)
		}
	}
	has("postponed", want)
	counts("postponed", 1, 2, 0)
	for id := range want {
		must(t, b.Retry(t.Context(), id, ""))
	}
	has("retried while it waits", want)
	for id := range want {
		must(t, b.Cancel(t.Context(), id))
	}
	counts("cancelled", 0, 0, 0)
	for id := range want {
		must(t, b.Retry(t.Context(), id, ""))
	}
	has("cancelled and retried", want)
	counts("cancelled and retried", 1, 0, 2)
	for id, status := range want {
		if runAt := b.get(id).Stages[ingest].RunAt; (runAt != nil) != (status == store.StatusScheduled) || runAt != nil && !runAt.Equal(tomorrow.Truncate(time.Microsecond)) {
			t.Errorf("%s waits until %v after it was cancelled and retried", id, runAt)
		}
	}
	if out := b.turn(w, 9, nil, ingest); len(out.Claims) != 2 {
		t.Errorf("claimed %d tasks, want those 2 that had been postponed", len(out.Claims))
	}
}
