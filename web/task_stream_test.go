package web_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestTaskStream_ClosesWhenTheTaskEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("https://u:secret@example.com/a")
	l := b.openStream("/tasks/"+id.String()+"/events", "")
	if m := l.wantEvents("task"); strings.Contains(m.data, "secret") || !strings.Contains(m.data, `"status":"pending"`) {
		t.Errorf("%+v", m)
	}
	b.submit("/other")
	b.failTask(id)
	last := l.wantEvents("started", "attempt_failed", "dead", "end")

	// A client that has seen the end gets 204 and does not reconnect; another client gets the end.
	path := "/tasks/" + id.String() + "/events"
	b.do(call{method: "GET", path: api + path, header: http.Header{"Last-Event-Id": {last.id}}}).wantStatus(204, nil)
	again := b.openStream(path, "")
	if m := again.wantEvents("task", "dead"); !strings.Contains(m.data, id.String()) {
		t.Errorf("%+v", m)
	}
	again.wantEvents("end")
	b.openStream(path+"?after=0", "").wantEvents("submitted", "started", "attempt_failed", "dead", "end")

	// After a retry the stream continues.
	if err := b.Retry(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	l = b.openStream(path, last.id)
	l.wantEvents("retry_scheduled")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	l.wantEvents("cancelled", "end")
	b.openStream(path+"?after=0", "").
		wantEvents("submitted", "started", "attempt_failed", "dead", "retry_scheduled", "cancelled", "end")
	b.get(api+"/tasks/"+store.ID{1}.String()+"/events").wantProblem(404, "not-found")
}

func TestTaskStream_IgnoresAnEarlierEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/a")
	b.failTask(id)
	if err := b.Retry(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	l := b.openStream("/tasks/"+id.String()+"/events?after=0", "")
	l.wantEvents("submitted", "started", "attempt_failed", "dead", "retry_scheduled")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	l.wantEvents("cancelled", "end")
}

func TestTaskStream_WaitsForAnEndThatIsNotVisibleYet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/a")
	begun := b.openStream("/tasks/"+id.String()+"/events", "").wantEvents("task")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := b.WithTx(tx).Submit(t.Context(), store.Submission{Source: "/open"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	// The event exists, but an open transaction hides it.
	l := b.openStream("/tasks/"+id.String()+"/events", begun.id)
	if l.resp.StatusCode != http.StatusOK {
		t.Fatalf("status is %d", l.resp.StatusCode)
	}
	fresh := b.openStream("/tasks/"+id.String()+"/events", "")
	fresh.wantEvents("task")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.wantEvents("cancelled", "end")
	fresh.wantEvents("cancelled", "end")
}

func TestTaskStream_ClosesWhenTheTaskIsOverriddenOrDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replaced, deleted := b.submit("/a"), b.submit("/b")
	one := b.openStream("/tasks/"+replaced.String()+"/events", "")
	two := b.openStream("/tasks/"+deleted.String()+"/events", "")
	one.wantEvents("task")
	two.wantEvents("task")
	if _, err := b.Override(t.Context(), []store.ID{replaced}, store.Submission{Source: "/c"}); err != nil {
		t.Fatal(err)
	}
	one.wantEvents("overridden", "cancelled", "end")
	b.exec("delete from tasks where id = $1", deleted)
	two.wantEvents("deleted", "end")
}

// claimStage claims one stage of a task. The returned function sends the report for it.
func (b *testServer) claimStage(id store.ID, stage int) (send func(engine.Report)) {
	b.t.Helper()
	w, err := engine.New(b.pool, b.Graph()).RegisterWorker(b.t.Context(), store.Worker{
		Host: "studio", PID: 7, Version: "v1",
	})
	if err != nil {
		b.t.Fatal(err)
	}
	request := engine.ExchangeRequest{
		Worker: w, FreeSlots: make([]int, 5), ClaimFrom: make([]bool, 5),
		OnlyTasks: []store.ID{id},
	}
	request.FreeSlots[stage], request.ClaimFrom[stage] = 1, true
	out, err := engine.New(b.pool, b.Graph()).Exchange(b.t.Context(), request)
	if err != nil || len(out.Claims) != 1 {
		b.t.Fatalf("claims are %+v, %v", out.Claims, err)
	}
	c := out.Claims[0]
	return func(report engine.Report) {
		b.t.Helper()
		report.Task, report.Stage, report.Token = c.Task, c.Stage, c.Token
		request.FreeSlots[stage], request.ClaimFrom[stage], request.Reports = 0, false, []engine.Report{report}
		if _, err := engine.New(b.pool, b.Graph()).Exchange(b.t.Context(), request); err != nil {
			b.t.Fatal(err)
		}
	}
}

// completeStage claims one stage of a task and sends the report for it.
func (b *testServer) completeStage(id store.ID, stage int, report engine.Report) {
	b.t.Helper()
	b.claimStage(id, stage)(report)
}

func TestTaskStream_GoesOnWhileAnotherStageOfADeadTaskRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/a")
	path := "/tasks/" + id.String() + "/events"
	before := b.openStream(path, "")
	before.wantEvents("task")
	b.completeStage(id, 0, engine.Report{Outcome: engine.Completed})
	complete := b.claimStage(id, 2)
	b.completeStage(id, 1, engine.Report{Outcome: engine.Failed, Dead: true, Class: "transient", Error: "disk 7 broke"})
	seen := before.wantEvents("started", "stage_completed", "started", "started", "attempt_failed", "dead")
	after, resumed := b.openStream(path, ""), b.openStream(path, seen.id)
	after.wantEvents("task")
	complete(engine.Report{Outcome: engine.Completed})
	for _, l := range []*streamClient{before, after, resumed} {
		l.wantEvents("stage_completed", "dead", "end") // the task stays dead
	}
}

func TestTaskStream_EndsWhenAStageStaysDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/a")
	done := engine.Report{Outcome: engine.Completed}
	dead := engine.Report{Outcome: engine.Failed, Dead: true, Class: "transient", Error: "disk 7 broke"}
	b.completeStage(id, 0, done)
	b.completeStage(id, 1, dead)
	b.completeStage(id, 2, dead)
	if err := b.Retry(t.Context(), id, b.Graph().Stages()[1]); err != nil {
		t.Fatal(err)
	}
	path := "/tasks/" + id.String() + "/events"
	l := b.openStream(path+"?after=0", "")
	l.wantEvents("submitted", "started", "stage_completed", "started", "attempt_failed", "dead", "started",
		"attempt_failed", "dead", "retry_scheduled")
	b.completeStage(id, 1, done)
	last := l.wantEvents("started", "stage_completed", "dead") // of the stage that stays dead, once more
	l.wantEvents("end")
	b.do(call{method: "GET", path: api + path, header: http.Header{"Last-Event-Id": {last.id}}}).wantStatus(204, nil)
}
