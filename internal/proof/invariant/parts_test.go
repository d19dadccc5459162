package invariant_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// setupParts is setup for a pipeline whose second stage divides.
func setupParts(t *testing.T) fixture {
	t.Helper()
	g, err := store.NewGraph("film", store.Node{Name: "ingest"},
		store.Node{Name: "transcode", Needs: []string{"ingest"}, Divides: true},
		store.Node{Name: "publish", Needs: []string{"transcode"}})
	if err == nil {
		g, err = g.WithTablePrefix("")
	}
	if err != nil {
		t.Fatal(err)
	}
	return setupPipeline(t, g)
}

// endPart returns the report of a claim that follows from the source: transcode has three parts, except of short.
// Part 2 of bumpy fails, is released, and then completed; that of dead fails for ever; that of held fails
// and is retried in an hour, while part 3 stays claimed. The first join of phases asks for part 2 again and for a fourth,
// and that of lost for part 2, which is an attempt.
func endPart(released *bool) func(engine.Claim) engine.Report {
	return func(c engine.Claim) engine.Report {
		switch {
		case c.Stage == 1 && c.Parts == 0 && c.Source != "short":
			return engine.Report{Outcome: engine.Divided, Parts: slices.Repeat([]json.RawMessage{json.RawMessage("{}")}, 3)}
		case c.Stage == 1 && c.Part == 0 && c.Parts == 3 && c.Source == "phases":
			return engine.Report{Outcome: engine.Divided, Parts: slices.Repeat([]json.RawMessage{json.RawMessage("{}")}, 4), Kept: []int{1, 3}}
		case c.Stage == 1 && c.Part == 0 && c.Source == "lost" && c.Attempt == 1:
			return engine.Report{
				Outcome: engine.Divided, Parts: slices.Repeat([]json.RawMessage{json.RawMessage("{}")}, 3), Kept: []int{1, 3},
				Counted: true, Error: "part 2 is lost", Class: "error",
			}
		case c.Part == 2 && c.Source == "bumpy" && c.Attempt == 1:
			return engine.Report{Outcome: engine.Failed, Error: "no luck"}
		case c.Part == 2 && c.Source == "bumpy" && !*released:
			*released = true
			return engine.Report{Outcome: engine.Released}
		case c.Part == 2 && c.Source == "dead":
			return engine.Report{Outcome: engine.Failed, Error: "never", Dead: true}
		case c.Part == 2 && c.Source == "held":
			return engine.Report{Outcome: engine.Failed, RetryIn: time.Hour}
		case c.Part == 3 && !slices.Contains([]string{"film", "bumpy", "phases", "lost"}, c.Source):
			return engine.Report{}
		}
		return engine.Report{Outcome: engine.Completed}
	}
}

// populateParts makes tasks of every kind: without parts; with three; with a part that failed and was released; with
// a dead part; cancelled while a part was claimed; divided again by their joins; and, with held, one that is divided.
func (f fixture) populateParts(held bool) {
	f.t.Helper()
	sources := []string{"short", "film", "bumpy", "dead", "cancelled", "phases", "lost"}
	if held {
		sources = append(sources, "held")
	}
	ids := make(map[string]store.ID)
	for _, s := range sources {
		r, err := f.Submit(f.t.Context(), store.Submission{Source: s, RequestID: s})
		if err != nil {
			f.t.Fatal(err)
		}
		ids[s] = r.ID
	}
	f.workClaims(endPart(new(bool)))
	if err := f.Cancel(f.t.Context(), ids["cancelled"]); err != nil {
		f.t.Fatal(err)
	}
}

var (
	settledParts = invariant.Options{
		Settled: true, NoRetries: true, MaxOrphanTime: time.Minute, MaxAttempts: []int{2, 2, 2}, MaxOvertaking: two(),
	}
	busyParts = invariant.Options{NoRetries: true, MaxOrphanTime: time.Minute, MaxAttempts: []int{2, 2, 2}}
)

// Parts, and the rows of the history, of one source.
const (
	part2OfFilm  = ` where task_id = (select id from tasks where source = 'film') and part = 2`
	part2OfBumpy = ` where task_id = (select id from tasks where source = 'bumpy') and part = 2`
	part2OfLost  = ` where task_id = (select id from tasks where source = 'lost') and part = 2`
	part3OfHeld  = ` where task_id = (select id from tasks where source = 'held') and part = 3`
	stageOfHeld  = ` where task_id = (select id from tasks where source = 'held') and part = 0`
	stageOfDead  = ` where task_id = (select id from tasks where source = 'dead') and part = 0`
)

func TestCheck_FindsEachViolationOfParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options  invariant.Options
		change   string
		violated []string
	}{
		"a count of open parts that is too low": {busyParts,
			`update steps set open_parts = 1` + stageOfHeld,
			[]string{"open-parts"}},
		"a count of parts that is too high": {busyParts,
			`update steps set parts = 4` + stageOfHeld,
			[]string{"open-parts"}},
		"parts that were not dropped with their count": {busyParts,
			`update steps set parts = null, open_parts = null` + stageOfHeld,
			[]string{"open-part", "open-parts"}},
		"a part that is missing": {settledParts,
			`delete from steps` + part2OfFilm,
			[]string{"open-parts"}},
		"a stage that is divided without open parts": {settledParts,
			`update tasks set transcode_status = 'divided' where source = 'film'`,
			[]string{"completed-once", "needs-completed", "open-part", "open-step", "settled", "status-matches"}},
		"a part that is completed and counted as open": {busyParts,
			`update steps set status = 'completed', token = null, locked_at = null, locked_by = null` + part3OfHeld,
			[]string{"attempt-counter", "completed-once", "kept-parts", "open-parts", "status-matches"}},
		"a divided stage whose parts are all completed": {invariant.Options{},
			`insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, outcome)
			 select task_id, coalesce(token, gen_random_uuid()), stage, part, attempts + (token is null)::integer,
			        gen_random_uuid(), now(), 'completed' from steps
			  where part > 0 and status <> 'completed' and task_id = (select id from tasks where source = 'held');
			 update steps set status = 'completed', attempts = attempts + (token is null)::integer, run_at = null, token = null,
			        locked_at = null, locked_by = null
			  where part > 0 and status <> 'completed' and task_id = (select id from tasks where source = 'held');
			 update steps set open_parts = 0` + stageOfHeld,
			[]string{"open-parts"}},
		"an open part of a completed stage": {settledParts,
			`update steps set status = 'ready'` + part2OfFilm,
			[]string{"completed-once", "open-part", "open-parts"}},
		"a part in progress of a dead stage": {settledParts,
			`update steps set status = 'running', token = gen_random_uuid(), locked_at = now(), locked_by = (select id from workers),
			        attempts = attempts + 1
			  where part = 3 and task_id = (select id from tasks where source = 'dead')`,
			[]string{"open-part"}},
		"a stopped part of a divided stage": {busyParts,
			`update steps set status = 'stopped', run_at = null where status = 'waiting'`,
			[]string{"open-part"}},
		"a stopped step of a stage that is not divided": {settledParts,
			`delete from steps where part > 0 and task_id = (select id from tasks where source = 'dead');
			 update steps set parts = null, open_parts = null` + stageOfDead,
			[]string{"closed-step"}},
		"a dead stage of which no part has died": {settledParts,
			`update attempts set retry_at = now()
			  where outcome = 'failed' and task_id = (select id from tasks where source = 'dead')`,
			[]string{"status-matches"}},
		"an open part with the priority of another task": {busyParts,
			`update steps set rank = 1` + part3OfHeld,
			[]string{"step-order"}},
		"an old claim of a part": {busyParts,
			`update workers set heartbeat_at = now() - interval '2 minutes';
			 update steps set locked_at = now() - interval '2 minutes'` + part3OfHeld + `;
			 update attempts set started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour'`,
			[]string{"orphaned"}},
		"a part whose token was used before": {busyParts,
			`update steps set token = (select token from attempts` + part2OfBumpy + ` limit 1)` + part3OfHeld,
			[]string{"unique-token"}},
		"a part that was completed twice": {settledParts,
			`insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, outcome)
			 select task_id, gen_random_uuid(), stage, part, 2, worker_id, now(), outcome from attempts` + part2OfFilm + `;
			 update steps set attempts = 2` + part2OfFilm,
			[]string{"completed-once", "completed-stays"}},
		"a part that was completed without an attempt": {settledParts,
			`delete from attempts` + part2OfFilm + `; update steps set attempts = 0` + part2OfFilm,
			[]string{"completed-once", "joined-last", "kept-parts", "status-matches"}},
		"a part that started before the stage that its stage needs": {settledParts,
			`update attempts set started_at = started_at - interval '11 seconds'` + part2OfFilm,
			[]string{"needs-first"}},
		"a claim of a part that is missing in the history": {settledParts,
			`delete from attempts` + part2OfBumpy + ` and outcome = 'failed'`,
			[]string{"attempt-numbers"}},
		"a counter of a part that counts a released attempt": {settledParts,
			`update steps set attempts = 3` + part2OfBumpy,
			[]string{"attempt-counter"}},
		"a counter of a stage that counts its division": {busyParts,
			`update steps set attempts = 1` + stageOfHeld,
			[]string{"attempt-counter"}},
		"a part with one attempt too many": {settledParts,
			`update attempts set attempt = attempt + 1` + part2OfBumpy + ` and outcome <> 'failed';
			 update steps set attempts = 3` + part2OfBumpy + `;
			 insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, finished_at, outcome)
			 select task_id, gen_random_uuid(), stage, part, 2, worker_id, started_at,
			        finished_at + interval '1 microsecond', 'expired'
			   from attempts` + part2OfBumpy + ` and outcome = 'failed'`,
			[]string{"attempt-limit"}},
		"a join that started before the end of a part": {settledParts,
			`update attempts set started_at = started_at - interval '11 seconds'
			  where task_id = (select id from tasks where source = 'film') and part = 0
			    and stage = 'transcode' and outcome = 'completed'`,
			[]string{"joined-last", "needs-first"}},
		"a join that ended before a part": {settledParts,
			`update attempts set finished_at = finished_at + interval '1 hour'` + part2OfFilm,
			[]string{"joined-last"}},
		"a part that was completed twice after a division again": {settledParts,
			`insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, outcome)
			 select task_id, gen_random_uuid(), stage, part, 2, worker_id, now(), outcome from attempts` + part2OfLost + ` limit 1;
			 update steps set attempts = 2` + part2OfLost,
			[]string{"completed-once", "completed-stays"}},
		"a part that was not done again after a division": {settledParts,
			`delete from attempts` + part2OfLost + ` and finished_at = (select max(finished_at) from attempts` + part2OfLost + `)`,
			[]string{"kept-parts"}},
		"a kept part that was done again": {settledParts,
			`update attempts set result = result || '{"kept": 3}' where result ? 'kept' and result ->> 'parts' = '4'`,
			[]string{"kept-parts"}},
		"a division because of an error that does not count": {settledParts,
			`update attempts set error = null where outcome = 'divided' and error is not null`,
			[]string{"attempt-numbers"}},
		"an attempt at a part of a stage that does not divide": {settledParts,
			`update attempts set part = 1 where stage = 'publish' and task_id = (select id from tasks where source = 'film');
			 update tasks set publish_status = 'cancelled' where source = 'film'`,
			[]string{"valid-history"}},
		"a completed part without an event": {settledParts,
			`update attempts set event_id = null where part > 0 and outcome = 'completed'`,
			[]string{"event-ids", "event-status"}},
		"a claim of a part without an event": {busyParts,
			`update outbox set parts = array(select 4 + n from unnest(parts) as n) where type = 'started' and 3 = any (parts)`,
			[]string{"event-status"}},
		"a failed part without an event": {busyParts,
			`update attempts set event_id = null where outcome = 'failed' and part = 2`,
			[]string{"event-ids", "event-outcome", "event-status"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setupParts(t)
			f.populateParts(!c.options.Settled || strings.Contains(c.change, "held"))
			healthy := c.options
			healthy.Settled = healthy.Settled && !strings.Contains(c.change, "held")
			if violated, details := f.check(healthy); len(violated) > 0 {
				t.Fatalf("a healthy database violates %v:\n%s", violated, strings.Join(details, "\n"))
			}
			f.exec(dropGuards)
			if !slices.ContainsFunc(c.violated, isOfEvents) && !strings.Contains(c.change, "outbox") {
				f.exec(`truncate outbox`) // its events describe the state before the change
			}
			f.exec(c.change)
			violated, details := f.check(c.options)
			if !slices.Equal(violated, c.violated) {
				t.Errorf("violated rules are %v, want %v:\n%s", violated, c.violated, strings.Join(details, "\n"))
			}
		})
	}
}

func TestCheck_AcceptsRetriesOfDividedStages(t *testing.T) {
	t.Parallel()
	f := setupParts(t)
	f.populateParts(true)
	for _, retry := range []struct {
		from  string
		fresh bool
	}{{"", false}, {"transcode", false}, {"transcode", true}, {"ingest", false}, {"publish", false}, {"", true}} {
		tasks, err := f.List(t.Context(), store.ListQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			again := f.Retry
			if retry.fresh {
				again = f.RetryFresh
			}
			if err := again(t.Context(), task.ID, retry.from); err != nil {
				t.Fatal(err)
			}
		}
		if violated, details := f.check(retried); len(violated) > 0 {
			t.Fatalf("after the retry %v, %v are violated:\n%s", retry, violated, strings.Join(details, "\n"))
		}
		f.workClaims(endPart(new(bool)))
		if violated, details := f.check(retried); len(violated) > 0 {
			t.Fatalf("after the retry %v and its work, %v are violated:\n%s", retry, violated, strings.Join(details, "\n"))
		}
	}
}

func TestCheck_AcceptsAnOpenPartOfADeadStageUntilItsStepsAreReconciled(t *testing.T) {
	t.Parallel()
	f := setupParts(t)
	if _, err := f.Submit(t.Context(), store.Submission{Source: "film"}); err != nil {
		t.Fatal(err)
	}
	var parts []engine.Claim
	f.workClaims(func(c engine.Claim) engine.Report {
		if c.Part > 0 {
			parts = append(parts, c)
			return engine.Report{}
		}
		return endPart(nil)(c)
	})
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from steps where part = 3 for no key update"); err != nil {
		t.Fatal(err)
	}
	e := engine.New(f.pool, f.Graph())
	died := engine.Report{Task: parts[0].Task, Stage: 1, Part: 1, Token: parts[0].Token, Outcome: engine.Failed, Dead: true}
	if _, err := e.Exchange(t.Context(), engine.ExchangeRequest{Worker: f.worker, Reports: []engine.Report{died}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if violated, details := f.check(invariant.Options{}); len(violated) > 0 {
		t.Fatalf("before the sweep, %v are violated:\n%s", violated, strings.Join(details, "\n"))
	}
	if violated, details := f.check(invariant.Options{Settled: true}); !slices.Equal(violated, []string{"open-part"}) {
		t.Fatalf("before the sweep, the violated rules are %v, want open-part:\n%s", violated, strings.Join(details, "\n"))
	}
	if err := e.Reconcile(t.Context(), f.worker, time.Minute); err != nil {
		t.Fatal(err)
	}
	if violated, details := f.check(settledParts); len(violated) > 0 {
		t.Errorf("after the sweep, %v are violated:\n%s", violated, strings.Join(details, "\n"))
	}
}

func TestCheck_AcceptsATaskThatWasDeletedWhileAWorkerDividedItsStage(t *testing.T) {
	t.Parallel()
	f := setupParts(t)
	r, err := f.Submit(t.Context(), store.Submission{Source: "film"})
	if err != nil {
		t.Fatal(err)
	}
	var transcode engine.Claim
	f.workClaims(func(c engine.Claim) engine.Report {
		if c.Stage == 1 {
			transcode = c
			return engine.Report{}
		}
		return engine.Report{Outcome: engine.Completed}
	})
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	divided := endPart(nil)(transcode)
	divided.Task, divided.Stage, divided.Token = transcode.Task, transcode.Stage, transcode.Token
	e := engine.New(tx, f.Graph())
	if _, err := e.Exchange(t.Context(), engine.ExchangeRequest{Worker: f.worker, Reports: []engine.Report{divided}}); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- f.Delete(t.Context(), r.ID, store.DeleteOptions{}) }()
	for waits := false; !waits; {
		const waitsSQL = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
		if err := f.pool.QueryRow(t.Context(), waitsSQL).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	if err := f.Undelete(t.Context(), r.ID, ""); err != nil {
		t.Fatal(err)
	}
	if violated, details := f.check(invariant.Options{NoRetries: true}); len(violated) > 0 {
		t.Fatalf("after it was restored, %v are violated:\n%s", violated, strings.Join(details, "\n"))
	}
	f.workClaims(endPart(nil))
	if violated, details := f.check(settledParts); len(violated) > 0 {
		t.Errorf("after its work, %v are violated:\n%s", violated, strings.Join(details, "\n"))
	}
}
