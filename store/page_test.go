package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// taskStates are tasks in every state that a list can select: the columns that differ from those of a new task, and then those of
// a stage's step.
var taskStates = []struct{ task, stage, step string }{
	{},
	{"scheduled_at = 'tomorrow'", "ingest", "status = 'waiting', run_at = 'tomorrow'"},
	{"ingest_status = 'failed'", "ingest", "status = 'waiting', attempts = 1, run_at = 'tomorrow'"},
	{"ingest_status = 'failed'", "ingest", "attempts = 1"},
	{"source = source", "ingest", "status = 'waiting', run_at = 'tomorrow'"}, // it was claimed, and postponed
	{
		"ingest_status = 'inprogress'", "ingest",
		"status = 'running', attempts = 1, token = cuelight_id(), locked_at = now(), locked_by = cuelight_id()",
	},
	{"ingest_status = 'completed'", "", ""},
	{"ingest_status = 'completed'", "transcode", "status = 'waiting', run_at = 'tomorrow'"},
	{"ingest_status = 'completed', transcode_status = 'failed'", "transcode", "status = 'waiting', attempts = 1, run_at = 'tomorrow'"},
	{"ingest_status = 'completed', transcode_status = 'dead'", "", ""},
	{"ingest_status = 'completed', transcode_status = 'dead', metadata_status = 'failed'", "metadata", "attempts = 1"},
	{"ingest_status = 'completed', transcode_status = 'cancelled', metadata_status = 'cancelled', assemble_status = 'cancelled'," +
		" publish_status = 'cancelled'", "", ""},
	{"ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed'", "", ""},
	{"ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed', assemble_status = 'completed'," +
		" publish_status = 'failed'", "publish", "attempts = 1"},
	{"ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed', assemble_status = 'completed'," +
		" publish_status = 'completed'", "", ""},
	{"ingest_status = 'dead', overridden_by = (select id from tasks order by id limit 1), transcode_status = 'cancelled'," +
		" metadata_status = 'cancelled', assemble_status = 'cancelled', publish_status = 'cancelled'", "", ""},
}

// submitInRandomStates submits n tasks in random states, and returns them, newest first.
func (b bundle) submitInRandomStates(n int, random *rand.Rand) []store.Task {
	b.t.Helper()
	for i := range n {
		id := b.submitTask(store.Submission{
			Source: fmt.Sprintf("/%d.mp4", random.IntN(10)), Priority: int16(random.IntN(4) - 1),
			UserID: []string{"", "ann", "bob"}[random.IntN(3)],
		})
		state := taskStates[random.IntN(len(taskStates))]
		if state.task == "" || i == 0 { // a task cannot override itself, so the first stays as it is
			continue
		}
		must(b.t, pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error {
			exchange := ""
			if strings.Contains(state.task, "inprogress") {
				exchange = "claims"
			}
			_, err := tx.Exec(b.t.Context(), "select set_config('cuelight.exchange', $1, true)", exchange)
			if err == nil {
				_, err = tx.Exec(b.t.Context(), "update tasks set "+state.task+" where id = $1", id)
			}
			if err == nil && state.stage != "" {
				_, err = tx.Exec(b.t.Context(), "update steps set "+state.step+" where task_id = $1 and stage = $2", id, state.stage)
			}
			return err
		}))
	}
	tasks, err := b.List(b.t.Context(), store.ListQuery{Filter: store.Filter{Limit: n + 1}})
	if err != nil || len(tasks) != n {
		b.t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	return tasks
}

// matches reports whether a query should find a task.
func matches(q store.ListQuery, t store.Task) bool {
	anyStage := func(is func(i int, s store.StageState) bool) bool {
		for i, s := range t.Stages {
			if is(i, s) {
				return true
			}
		}
		return false
	}
	status := func(want ...store.Status) bool {
		return anyStage(func(_ int, s store.StageState) bool { return slices.Contains(want, s.Status) })
	}
	scheduled := anyStage(func(_ int, s store.StageState) bool { return s.RunAt != nil })
	ready := anyStage(func(i int, s store.StageState) bool {
		return slices.Contains([]store.Status{pending, failing}, s.Status) && s.RunAt == nil && hasNeeds(t, i)
	})
	stage, _ := store.Video().Stage(q.Stage)
	return (q.Status == "" || t.Status == q.Status) && (q.UserID == "" || t.UserID == q.UserID) &&
		(q.Source == "" || strings.Contains(t.Source, q.Source)) &&
		(q.Stage == "" || t.Stages[stage].Status == q.StageStatus) &&
		map[store.StateFilter]bool{
			"": true, store.StateRunning: status(inprogress), store.StateReady: ready,
			store.StateDead:      status(dead) && t.OverriddenBy.IsZero(),
			store.StateScheduled: t.Status == store.StatusScheduled,
			store.StateRetrying:  (status(failing) || scheduled) && t.Status != store.StatusScheduled,
		}[q.State]
}

func hasNeeds(t store.Task, stage int) bool {
	for i := range t.Stages {
		if slices.Contains(store.Video().Feeds(i), stage) && t.Stages[i].Status != done {
			return false
		}
	}
	return true
}

func TestPages_ReturnAllMatchesAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	all := b.submitInRandomStates(150, rand.New(rand.NewPCG(seed, 0)))
	queries := []store.ListQuery{{}}
	for _, state := range []store.StateFilter{
		store.StateRunning, store.StateReady, store.StateScheduled, store.StateRetrying, store.StateDead,
	} {
		queries = append(queries, store.ListQuery{State: state})
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
				for _, q.OldestFirst = range []bool{false, true} {
					b.checkPages(all, q)
				}
			}
		}
	}
	stats, err := b.Stats(t.Context())
	must(t, err)
	for state, got := range map[store.StateFilter]int{
		store.StateRunning: stats.Running, store.StateReady: stats.Ready, store.StateScheduled: stats.Scheduled,
		store.StateRetrying: stats.Retrying, store.StateDead: stats.Dead,
	} {
		want := 0
		for _, task := range all {
			if matches(store.ListQuery{State: state}, task) {
				want++
			}
		}
		if got != want {
			t.Errorf("%d tasks are %s, want %d", got, state, want)
		}
	}
}

// checkPages compares all pages of a query with the tasks that match it.
func (b bundle) checkPages(all []store.Task, q store.ListQuery) {
	b.t.Helper()
	var want, got []store.ID
	for _, task := range all {
		if matches(q, task) {
			want = append(want, task.ID)
		}
	}
	if q.OldestFirst {
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

// A search without an index reads only MaxSearch tasks per page. A page is not the last as
// long as there are more tasks.
func TestPage_SearchStopsAfterMaxSearch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("alter table tasks disable trigger user")
	oldest := b.submitTask(store.Submission{Source: "/found.mp4"})
	b.exec("insert into tasks (source) select n::text from generate_series(1, $1) as n", store.MaxSearch+100)
	q := store.ListQuery{Filter: store.Filter{Source: "found", Limit: 10}}
	page, err := b.Page(t.Context(), q)
	if err != nil || len(page.Tasks) != 0 || page.Next.IsZero() {
		t.Fatalf("the first page has %d tasks, the next starts after %s, %v", len(page.Tasks), page.Next, err)
	}
	q.After = page.Next
	page, err = b.Page(t.Context(), q)
	if err != nil || fmt.Sprint(ids(page.Tasks)) != fmt.Sprint([]store.ID{oldest}) || !page.Next.IsZero() {
		t.Errorf("the next page has %v, the one after it starts after %s, %v", ids(page.Tasks), page.Next, err)
	}
	tasks, err := b.List(t.Context(), store.ListQuery{Filter: store.Filter{Source: "found"}})
	if err != nil || fmt.Sprint(ids(tasks)) != fmt.Sprint([]store.ID{oldest}) {
		t.Errorf("List returned %v, %v", ids(tasks), err)
	}
}

func TestStats_CountALongQueueUpToTheLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = report.MaxCount + 1000
	b.exec("insert into tasks (source) select n::text from generate_series(1, $1) as n", n)
	b.exec("insert into tasks (source, scheduled_at) select n::text, 'tomorrow' from generate_series(1, $1) as n", n)
	stats, err := b.Stats(t.Context())
	if err != nil || stats.Ready != report.MaxCount || stats.Stages[0].Ready != report.MaxCount {
		t.Errorf("it is %+v, %v", stats, err)
	}
	if stats.Scheduled != report.MaxCount {
		t.Errorf("%d tasks are scheduled, want %d", stats.Scheduled, report.MaxCount)
	}
}

func TestStatus_IsScheduledUntilItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	id := b.submitTask(store.Submission{Source: "a.mp4", NotBefore: time.Now().Add(time.Hour)})
	wantStatus := func(want store.Status) {
		t.Helper()
		task, err := b.Get(t.Context(), id)
		var inSQL string
		must(t, b.pool.QueryRow(t.Context(), "select cuelight_video_status(t) from tasks t").Scan(&inSQL))
		if err != nil || task.Status != want || inSQL != string(want) {
			t.Errorf("the status is %s, in SQL %s, %v; want %s", task.Status, inSQL, err, want)
		}
	}
	wantStatus(store.StatusScheduled)
	stats, err := b.Stats(t.Context())
	if err != nil || stats.Scheduled != 1 || stats.Retrying+stats.Ready != 0 || stats.Stages[0].OldestReady != 0 {
		t.Errorf("stats is %+v, %v", stats, err)
	}
	b.exec("update tasks set scheduled_at = now() - interval '1 s'; update steps set status = 'ready', run_at = null")
	wantStatus(pending)
	b.exchange(w, 0, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
	wantStatus(failing)
}

// submitPostponed submits a task whose first claim is released, to be retried in an hour.
func (b bundle) submitPostponed(w store.ID, sub store.Submission) store.ID {
	b.t.Helper()
	id := b.submitTask(sub)
	if !sub.NotBefore.IsZero() {
		b.exec("update tasks set scheduled_at = now() - interval '1 s' where id = $1", id) // the time has come
		b.exec("update steps set run_at = now() - interval '1 s' where task_id = $1", id)
	}
	in := exchangeRequest(w, 1, nil, ingest)
	in.PromoteDue = true
	out, err := b.Exchange(b.t.Context(), in)
	must(b.t, err)
	if len(out.Claims) != 1 || out.Claims[0].Task != id {
		b.t.Fatalf("the claims are %+v, want %s", out.Claims, id)
	}
	r := failed(out.Claims[0], time.Hour)
	r.Outcome = engine.Released
	b.exchange(w, 0, []engine.Report{r})
	return id
}

// A released claim does not count as an attempt, but its task is not scheduled any more.
func TestStatus_OfAPostponedTaskIsNotScheduled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	tomorrow := time.Now().Add(24 * time.Hour)
	want := map[store.ID]store.Status{
		b.submitPostponed(w, store.Submission{Source: "a.mp4"}):                      pending,
		b.submitPostponed(w, store.Submission{Source: "b.mp4", NotBefore: tomorrow}): pending,
		b.submitTask(store.Submission{Source: "c.mp4", NotBefore: tomorrow}):         store.StatusScheduled,
	}
	wantStatuses := func(when string, want map[store.ID]store.Status) {
		t.Helper()
		var all []store.Task
		for id, status := range want {
			task := b.get(id)
			var inSQL string
			must(t, b.pool.QueryRow(t.Context(), "select cuelight_video_status(t) from tasks t where id = $1", id).Scan(&inSQL))
			if s := task.Stages[ingest]; task.Status != status || inSQL != string(status) || s.Attempts != 0 {
				t.Errorf("%s, %s is %s, in SQL %s, after %d attempts; want %s", when, task.Source, task.Status,
					inSQL, s.Attempts, status)
			}
			all = append(all, task)
		}
		slices.SortFunc(all, func(a, b store.Task) int { return bytes.Compare(b.ID[:], a.ID[:]) })
		for _, state := range []store.StateFilter{store.StateScheduled, store.StateRetrying, store.StateReady} {
			b.checkPages(all, store.ListQuery{State: state})
		}
		for _, status := range []store.Status{store.StatusScheduled, pending, cancelled} {
			b.checkPages(all, store.ListQuery{Filter: store.Filter{Status: status}})
		}
	}
	wantStats := func(when string, scheduled, retrying, ready int) {
		t.Helper()
		stats, err := b.Stats(t.Context())
		if err != nil || stats.Scheduled != scheduled || stats.Retrying != retrying || stats.Ready != ready {
			t.Errorf("%s, stats is %+v, %v; want %d scheduled, %d retrying, %d waiting", when, stats, err,
				scheduled, retrying, ready)
		}
	}
	wantStatuses("postponed", want)
	wantStats("postponed", 1, 2, 0)
	for id := range want {
		must(t, b.Retry(t.Context(), id, ""))
	}
	wantStatuses("retried while it waits", want)
	for id := range want {
		must(t, b.Cancel(t.Context(), id))
	}
	wantStats("cancelled", 0, 0, 0)
	for id := range want {
		must(t, b.Retry(t.Context(), id, ""))
	}
	wantStatuses("cancelled and retried", want)
	wantStats("cancelled and retried", 1, 0, 2)
	for id, status := range want {
		runAt := b.get(id).Stages[ingest].RunAt
		if (runAt != nil) != (status == store.StatusScheduled) ||
			runAt != nil && !runAt.Equal(tomorrow.Truncate(time.Microsecond)) {
			t.Errorf("%s waits until %v after it was cancelled and retried", id, runAt)
		}
	}
	if out := b.exchange(w, 9, nil, ingest); len(out.Claims) != 2 {
		t.Errorf("claimed %d tasks, want the 2 that had been postponed", len(out.Claims))
	}
}
