package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// events returns all events after an id, read in small pages.
func (b bundle) events(after int64) []store.Event {
	b.t.Helper()
	var all []store.Event
	for {
		next, err := b.Events(b.t.Context(), store.EventQuery{After: after, Limit: 7})
		if err != nil {
			b.t.Fatal(err)
		}
		if len(next) == 0 {
			return all
		}
		all = append(all, next...)
		after = all[len(all)-1].ID
	}
}

// eventTexts returns the type and stage of the events, without those of workers.
func eventTexts(events []store.Event) []string {
	var texts []string
	for _, e := range events {
		if e.Worker.IsZero() || !e.Task.IsZero() {
			texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s %s", e.Type, e.Stage)))
		}
	}
	return texts
}

func wantEvents(t *testing.T, events []store.Event, want ...string) {
	t.Helper()
	if got := eventTexts(events); !slices.Equal(got, want) {
		t.Errorf("events are\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestEvents_RecordTheLifeOfATask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	id := b.submit()
	b.completeAll(w, b.claim(w, ingest))
	events := b.events(0)
	order := []string{"stage_completed transcode", "stage_completed metadata"} // of one exchange
	if len(events) > 6 && events[6].Stage == "metadata" {
		slices.Reverse(order)
	}
	wantEvents(t, events, "submitted", "started ingest", "stage_completed ingest", "started transcode", "started metadata",
		order[0], order[1], "started assemble",
		"stage_completed assemble", "started publish", "stage_completed publish", "completed")
	for i, e := range events {
		if i > 0 && (e.ID <= events[i-1].ID || e.At.Before(events[i-1].At)) {
			t.Errorf("event %d at %s follows event %d at %s", e.ID, e.At, events[i-1].ID, events[i-1].At)
		}
		hasStage := e.Stage != ""
		if e.Type != store.WorkerStarted && e.Task != id || hasStage && (e.Worker != w || e.Attempt != 1) {
			t.Errorf("event of another task, worker or attempt: %+v", e)
		}
		if e.Type.FinishesTask() != (e.Type == store.TaskCompleted) {
			t.Errorf("%s finishes the task: %v", e.Type, e.Type.FinishesTask())
		}
	}
}

func TestEvents_FailedAttemptIsNotTerminal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	from, err := b.EventWatermark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.exchange(w, 0, []engine.Report{failed(b.claim(w, ingest), time.Millisecond)})
	b.exec(`update steps set status = 'ready', run_at = null`)
	last := failed(b.claim(w, ingest), 0)
	last.Dead = true
	b.exchange(w, 0, []engine.Report{last})
	events := b.events(from)
	wantEvents(t, events, "started ingest", "attempt_failed ingest", "retry_scheduled ingest", "started ingest",
		"attempt_failed ingest", "dead ingest")
	var when struct {
		RunAt time.Time `json:"run_at"`
	}
	if err := json.Unmarshal(events[2].Data, &when); err != nil || when.RunAt.Sub(events[2].At).Abs() > time.Second {
		t.Errorf("a retry recorded at %s has run_at %s, %v", events[2].At, when.RunAt, err)
	}
	want := `"error": "work failed", "run_at": "`
	if !strings.Contains(string(events[2].Data), want) ||
		!strings.Contains(string(events[2].Data), `"error_class": "error"`) {
		t.Errorf("the retry's data is %s", events[2].Data)
	}
	for _, i := range []int{1, 4, 5} {
		if want := `{"error": "work failed", "error_class": "error"}`; string(events[i].Data) != want {
			t.Errorf("%s has the data %s, want %s", events[i].Type, events[i].Data, want)
		}
	}
	for i, e := range events {
		if e.Type.FinishesTask() != (i == 5) {
			t.Errorf("%s finishes the task: %v", e.Type, e.Type.FinishesTask())
		}
	}
}

func TestEvents_RecordOperatorActions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	ctx := t.Context()
	id := b.submit()
	c := b.claim(w, ingest)
	must(t, b.Cancel(ctx, id))
	must(t, b.Cancel(ctx, id))
	must(t, b.Retry(ctx, id, ""))
	b.exchange(w, 0, []engine.Report{completed(b.claim(w, ingest))})
	must(t, b.Retry(ctx, id, "metadata"))
	r, err := b.Override(ctx, []store.ID{id}, store.Submission{Source: "better.mp4"})
	must(t, err)
	events, err := b.Events(ctx, store.EventQuery{Task: id})
	must(t, err)
	b.exec(`delete from tasks where overridden_by is not null`) // with its history, and the events of its attempts
	deleted, err := b.Events(ctx, store.EventQuery{Task: id, After: events[len(events)-1].ID})
	must(t, err)
	events = append(events, deleted...)
	wantEvents(t, events, "submitted", "started ingest", "cancelled", "retry_scheduled ingest", "started ingest",
		"stage_completed ingest",
		"overridden", "cancelled", "deleted")
	if c.Task != id {
		t.Error("another task was claimed")
	}
	for i, want := range map[int]string{
		2: `{"stages": ["ingest", "transcode", "metadata", "assemble", "publish"]}`,
		6: fmt.Sprintf(`{"overridden_by": %q}`, r.ID),
		7: `{"stages": ["transcode", "metadata", "assemble", "publish"]}`,
	} {
		if string(events[i].Data) != want {
			t.Errorf("%s has the data %s, want %s", events[i].Type, events[i].Data, want)
		}
	}
}

// Changes of rows with psql are recorded like others.
func TestEvents_RecordChangesByHand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.exec(`insert into tasks (source) values ('a.mp4')`)
	b.claim(w, ingest)
	b.exec(`update tasks set ingest_status = 'completed'`)
	b.exec(`update tasks set transcode_status = 'failed', metadata_status = 'dead'`)
	b.exec(`update tasks set transcode_status = 'completed', metadata_status = 'completed', assemble_status = 'completed'`)
	b.exec(`update tasks set publish_status = 'completed'`)
	b.exec(`update tasks set priority = 3`)
	b.exec(`update tasks set publish_status = 'pending'`)
	wantEvents(t, b.events(0), "submitted", "started ingest", "stage_completed ingest",
		"dead metadata",
		"stage_completed transcode", "stage_completed metadata", "stage_completed assemble", "stage_completed publish",
		"completed", "retry_scheduled publish")
}

// For tasks that are imported as ended, the events record the end as happening now.
func TestEvents_RecordTheEndOfImportedTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
	        values ('old.mp4', 'completed', 'completed', 'completed', 'completed', 'completed')`)
	b.exec(`insert into tasks (source, ingest_status) values ('dead.mp4', 'dead'), ('new.mp4', 'pending')`)
	b.exec(`insert into tasks (source, ingest_status, transcode_status) values ('begun.mp4', 'completed', 'pending')`)
	events := b.events(0)
	wantEvents(t, events, "submitted", "completed", "submitted", "submitted", "dead", "submitted")
	if events[4].Task != events[2].Task {
		t.Error("another task is dead than the first one")
	}
}

func TestEvents_RecordWorkersAndTheirClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	lost, stopped, w := b.worker(), b.worker(), b.worker()
	for range 2 {
		b.submit()
	}
	b.claim(lost, ingest)
	b.claim(stopped, ingest)
	from, err := b.EventWatermark(ctx)
	must(t, err)
	_, err = b.Heartbeat(ctx, engine.HeartbeatRequest{
		Worker: lost, Progressed: []store.Running{{Task: store.ID{7}, Stage: "ingest", Attempt: 1, Percent: 12.5, ETA: 4}},
	})
	must(t, err)
	must(t, b.DeregisterWorker(ctx, stopped))
	must(t, b.DeregisterWorker(ctx, stopped))
	_, err = b.ExpireWorkers(ctx, []store.ID{lost})
	must(t, err)
	_, err = b.Sweep(ctx, engine.SweepRequest{Worker: w, MaxAttempts: []int{3, 3, 3, 3, 3}})
	must(t, err)
	var got []string
	events := b.events(from)
	for _, e := range events {
		got = append(got, string(e.Type))
	}
	want := []string{"progress", "worker_stopped", "worker_lost", "attempt_expired", "retry_scheduled", "released"}
	if slices.Sort(got[3:]); !slices.Equal(got[:3], want[:3]) ||
		!slices.Equal(got[3:], []string{"attempt_expired", "released", "retry_scheduled"}) {
		t.Fatalf("events are %v, want %v", got, want)
	}
	e := events[0]
	if e.Task != (store.ID{7}) || e.Stage != "ingest" || e.Worker != lost ||
		string(e.Data) != `{"eta_s": 4, "percent": 12.5}` {
		t.Errorf("the progress event is %+v", e)
	}
	for i, worker := range map[int]store.ID{1: stopped, 2: lost} {
		if e := events[i]; e.Worker != worker || string(e.Data) != `{"pid": 1, "host": "test", "name": "test"}` {
			t.Errorf("%s is of worker %s, with the data %s", e.Type, e.Worker, e.Data)
		}
	}
}

func TestCancel_NotifiesEventReaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	notified := b.listen(store.Video().EventsChannel())
	must(t, b.Cancel(t.Context(), id))
	if channels := notified(); len(channels) != 1 {
		t.Errorf("notified on %v, want one channel", channels)
	}
}

func TestEvents_OfATaskAreComplete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	other, id := b.submit(), b.submit()
	for range 2 {
		c := b.claim(w, ingest)
		progressed := store.Running{Task: c.Task, Stage: "ingest", Token: c.Token, Attempt: 1, Percent: 50}
		_, err := b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w, Progressed: []store.Running{progressed}})
		must(t, err)
	}
	b.submit()
	for _, task := range []store.ID{other, id} {
		var want []store.Event
		for _, e := range b.events(0) {
			if e.Task == task {
				want = append(want, e)
			}
		}
		var got []store.Event
		for {
			after := int64(0)
			if len(got) > 0 {
				after = got[len(got)-1].ID
			}
			next, err := b.Events(t.Context(), store.EventQuery{Task: task, After: after, Limit: 1})
			must(t, err)
			if len(next) == 0 {
				break
			}
			got = append(got, next...)
		}
		if len(want) != 3 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the events of task %v are\n\t%+v\nwant\n\t%+v", task, got, want)
		}
	}
}

// queryInt returns the number that a query returns.
func (b bundle) queryInt(sql string) (n int) {
	b.t.Helper()
	must(b.t, b.pool.QueryRow(b.t.Context(), sql).Scan(&n))
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEventWatermark_StaysBehindOpenTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	read := func() (watermark, allocated int64) {
		t.Helper()
		watermark, err1 := b.EventWatermark(t.Context())
		allocated, err2 := b.LastAllocatedEvent(t.Context())
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return watermark, allocated
	}
	if watermark, allocated := read(); watermark != allocated {
		t.Errorf("without events: watermark %d, allocated %d", watermark, allocated)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WithTx(tx).Submit(t.Context(), store.Submission{Source: "open"}); err != nil {
		t.Fatal(err)
	}
	b.submit()
	watermark, allocated := read()
	if watermark >= allocated {
		t.Errorf("with an open transaction: watermark %d, allocated %d", watermark, allocated)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if watermark, _ := read(); watermark < allocated {
		t.Errorf("after the commit: watermark %d, want at least %d", watermark, allocated)
	}
}
