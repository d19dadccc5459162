package store_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

const (
	pending    = store.StatusPending
	inprogress = store.StatusInProgress
	done       = store.StatusCompleted
	failing    = store.StatusFailed
	dead       = store.StatusDead
	cancelled  = store.StatusCancelled
)

func TestExchange_TakesATaskThroughItsStages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()

	c := b.claim(w, ingest)
	if c.Task != id || c.Attempt != 1 || c.Source != "a.mp4" || string(c.Params) != "{}" {
		t.Errorf("claim is %+v", c)
	}
	b.wantStatuses(id, inprogress, pending, pending, pending, pending)

	out := b.exchange(w, 1, []engine.Report{completed(c)})
	b.wantStatuses(id, done, inprogress, inprogress, pending, pending)
	if len(out.Claims) != 2 {
		t.Fatalf("completing ingest claimed %d stages of the task, want transcode and metadata", len(out.Claims))
	}

	next := b.exchange(w, 1, []engine.Report{completed(out.Claims[0])})
	b.wantStatuses(id, done, done, inprogress, pending, pending)
	if len(next.Claims) != 0 {
		t.Errorf("assemble was claimed before metadata was completed")
	}
	b.completeAll(w, out.Claims[1])
	b.wantStatuses(id, done, done, done, done, done)
	if got := b.get(id).Status; got != done {
		t.Errorf("task is %s, want completed", got)
	}
	if h := b.history(id); len(h) != 5 {
		t.Errorf("history has %d attempts, want 5", len(h))
	}
}

func TestExchange_StartsFanInOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims

	out := b.exchange(w, 5, []engine.Report{completed(siblings[0]), completed(siblings[1])}, assemble)
	if len(out.Claims) != 1 || out.Claims[0].Stage != assemble {
		t.Errorf("claims are %+v, want assemble once", out.Claims)
	}
	b.wantStatuses(id, done, done, done, inprogress, pending)
}

func TestExchange_CompletesManyTasksInSeveralStages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ slots, perStage int }{
		"all continue":     {200, 40},
		"slots are scarce": {30, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const tasks = 40 // in each set of stages
			b := setup(t)
			w := b.worker()
			var reports []engine.Report
			for range 4 { // those that were submitted first get farthest
				for range tasks {
					b.submit()
				}
				claims := b.exchange(w, tasks, nil, ingest).Claims
				claims = append(claims, b.exchange(w, 2*tasks, reports).Claims...)
				reports = nil
				for _, claim := range claims {
					reports = append(reports, completed(claim))
				}
			}
			out := b.exchange(w, c.slots, reports)
			if len(reports) != 5*tasks || len(out.Stale)+len(out.Locked) > 0 {
				t.Fatalf("%d reports, %d stale, %d locked; want 200, none, none", len(reports), len(out.Stale), len(out.Locked))
			}
			var started [5][]store.ID
			for _, claim := range out.Claims {
				started[claim.Stage] = append(started[claim.Stage], claim.Task)
			}
			for stage, ids := range started {
				if want := c.perStage * min(stage, 1); len(ids) != want || !slices.IsSortedFunc(ids, compareIDs) {
					t.Errorf("%s: %d tasks continue, want the first %d", b.Graph().Stages()[stage], len(ids), want)
				}
			}
			rows := 0
			if err := b.pool.QueryRow(t.Context(), "select count(*) from attempts where outcome = 'completed'").Scan(&rows); err != nil {
				t.Fatal(err)
			}
			if want := tasks * (5 + 4 + 3 + 1); rows != want {
				t.Errorf("the history has %d attempts, want %d", rows, want)
			}
		})
	}
}

func compareIDs(a, b store.ID) int { return bytes.Compare(a[:], b[:]) }

func TestExchange_ContinuesOnlyWhileSlotsAreFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	for range 3 {
		b.submit()
	}
	first := b.exchange(w, 3, nil, ingest).Claims
	in := exchangeRequest(w, 0, []engine.Report{completed(first[0]), completed(first[1]), completed(first[2])}, transcode, metadata)
	in.FreeSlots[transcode] = 2
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Claims) != 2 || out.Claims[0].Stage != transcode || out.Claims[1].Stage != transcode {
		t.Errorf("claims are %+v, want two of transcode", out.Claims)
	}
	if !out.MoreReady[transcode] || !out.MoreReady[metadata] {
		t.Errorf("MoreReady is %v, want transcode and metadata", out.MoreReady)
	}
}

func TestExchange_IgnoresReportsWithAnotherToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	held := b.claim(w, ingest)
	stale := held
	stale.Token = store.ID{1}

	for name, report := range map[string]engine.Report{
		"completed": completed(stale),
		"failed":    failed(stale, time.Second),
		"released":  {Task: id, Stage: ingest, Token: stale.Token, Outcome: engine.Released},
		"no token":  {Task: id, Stage: ingest, Outcome: engine.Completed},
		"nothing":   {Outcome: engine.Completed},
	} {
		out := b.exchange(w, 1, []engine.Report{report})
		if len(out.Stale) != 1 || len(out.Claims) != 0 {
			t.Errorf("%s: %d stale reports and %d claims, want 1 and none", name, len(out.Stale), len(out.Claims))
		}
		b.wantStatuses(id, inprogress, pending, pending, pending, pending)
	}
	if h := b.history(id); len(h) != 0 {
		t.Errorf("history has %d attempts, want none", len(h))
	}
	if out := b.exchange(w, 0, []engine.Report{completed(held)}); len(out.Stale) != 0 {
		t.Error("the report with the right token is stale")
	}
	if out := b.exchange(w, 0, []engine.Report{failed(held, time.Second)}); len(out.Stale) != 1 {
		t.Error("a second report with another outcome was accepted")
	}
}

// The first exchange may have been committed although its answer was lost.
func TestExchange_AcceptsARecordedReportAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	held := b.claim(w, ingest)
	for range 2 {
		if out := b.exchange(w, 0, []engine.Report{completed(held)}); len(out.Stale)+len(out.Locked) != 0 {
			t.Errorf("the report is stale or locked: %+v", out)
		}
	}
	if n := len(b.history(id)); n != 1 {
		t.Errorf("the history has %d attempts, want 1", n)
	}
}

func TestExchange_RetriesAFailedStageWhenItIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	b.exchange(w, 1, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
	b.wantStatuses(id, failing, pending, pending, pending, pending)

	out := b.exchange(w, 1, nil, ingest)
	if len(out.Claims) != 0 || out.MoreReady[ingest] {
		t.Errorf("the stage was claimed, or reported as ready, before it was due")
	}
	if n := out.NextDue; n < 59*time.Minute || n > time.Hour {
		t.Errorf("NextDue is %s, want an hour", n)
	}

	b.exec("update steps set run_at = now() - interval '1 second'")
	in := exchangeRequest(w, 1, nil, ingest)
	in.PromoteDue = true
	second, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(second.Claims) != 1 || second.Claims[0].Attempt != 2 {
		t.Fatalf("claims are %+v, want the second attempt", second.Claims)
	}
	h := b.history(id)
	if len(h) != 1 || h[0].Outcome != "failed" || h[0].Error != "work failed" || h[0].RetryAt == nil ||
		h[0].Host != "test" {
		t.Errorf("history is %+v", h)
	}
}

func TestExchange_DeadStageLeavesItsSiblingAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	r := failed(siblings[0], 0)
	r.Dead = true
	b.exchange(w, 1, []engine.Report{r})
	b.wantStatuses(id, done, dead, inprogress, pending, pending)
	if task := b.get(id); task.Status != dead || task.IsFinished(b.Graph()) {
		t.Errorf("task is %s, finished: %t; want dead, and not finished while metadata runs", task.Status,
			task.IsFinished(b.Graph()))
	}
	b.exchange(w, 1, []engine.Report{completed(siblings[1])})
	b.wantStatuses(id, done, dead, done, pending, pending)
	if !b.get(id).IsFinished(b.Graph()) {
		t.Error("no stage can run any more, but the task is not finished")
	}
}

func TestExchange_ReleasedClaimDoesNotCountAsAnAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	b.exchange(w, 0, []engine.Report{{Task: id, Stage: ingest, Token: c.Token, Outcome: engine.Released}})
	if second := b.claim(w, ingest); second.Attempt != 1 || second.Token == c.Token {
		t.Errorf("second claim is attempt %d with token reused %t; want 1 and false", second.Attempt, second.Token == c.Token)
	}
	if h := b.history(id); len(h) != 1 || h[0].Outcome != "released" {
		t.Errorf("history is %+v, want one released attempt", h)
	}
}

func TestExchange_NextDueIsZeroWhenDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	b.exec("update steps set status = 'waiting', run_at = now() - interval '1 hour'")
	if n := b.exchange(w, 1, nil, ingest).NextDue; n != 0 {
		t.Errorf("NextDue is %s, want 0", n)
	}
	b.exec("update steps set run_at = now() + interval '1 year'")
	if n := b.exchange(w, 1, nil, ingest).NextDue; n < 24*time.Hour {
		t.Errorf("NextDue is %s, want a long time", n)
	}
}

func TestExchange_IncompleteFanInIsNotMoreReady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	in := exchangeRequest(w, 1, []engine.Report{completed(siblings[0])}, assemble)
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if out.MoreReady[assemble] {
		t.Error("MoreReady reports assemble before metadata is completed")
	}
}

func TestExchange_LostWorkerClaimsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	held := b.claim(w, ingest)
	b.submit()
	b.exec("update workers set lost_at = now()")
	out := b.exchange(w, 5, []engine.Report{completed(held)}, ingest)
	if len(out.Claims) != 0 || len(out.Stale) != 0 {
		t.Errorf("claims are %+v and stale reports %+v; want none", out.Claims, out.Stale)
	}
}

func TestExchange_AppliesEveryOutcomeInAOneStagePipeline(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("single", store.Node{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTables(pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL())), g)
	w, err := s.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	var ids []store.ID
	for range 3 {
		r, err := s.Submit(t.Context(), store.Submission{Source: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	in := engine.ExchangeRequest{Worker: w, FreeSlots: []int{3}, ClaimFrom: []bool{true}, OnlyTasks: ids}
	out, err := s.Exchange(t.Context(), in)
	if err != nil || len(out.Claims) != 3 {
		t.Fatalf("%+v, %v", out.Claims, err)
	}
	released := engine.Report{Task: ids[2], Token: out.Claims[2].Token, Outcome: engine.Released}
	in.Reports = []engine.Report{completed(out.Claims[0]), failed(out.Claims[1], 0), released}
	if out, err = s.Exchange(t.Context(), in); err != nil || len(out.Claims) != 2 || out.Claims[0].Task != ids[1] {
		t.Errorf("%+v, %v; want the two that were not completed", out.Claims, err)
	}
}
