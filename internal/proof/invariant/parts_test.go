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

const dropPartGuards = `
alter table parts disable trigger user;
alter table parts drop constraint parts_claim, drop constraint parts_waits;`

// Parts, and the rows of the history, of one source.
const (
	part2OfFilm  = ` where task_id = (select id from tasks where source = 'film') and part = 2`
	part2OfBumpy = ` where task_id = (select id from tasks where source = 'bumpy') and part = 2`
	part2OfLost  = ` where task_id = (select id from tasks where source = 'lost') and part = 2`
	part3OfHeld  = ` where task_id = (select id from tasks where source = 'held') and part = 3`
)

func TestCheck_FindsEachViolationOfParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options  invariant.Options
		change   string
		violated []string
	}{
		"a count of open parts that is too low": {busyParts,
			`update tasks set transcode_open_parts = 1 where source = 'held'`,
			[]string{"open-parts"}},
		"a count of parts that do not exist": {settledParts,
			`update tasks set transcode_open_parts = 0 where source = 'short'`,
			[]string{"open-parts"}},
		"parts that were not dropped with their count": {settledParts,
			`update tasks set transcode_open_parts = null where source = 'film'`,
			[]string{"open-parts"}},
		"a part that is missing": {settledParts,
			`delete from parts` + part2OfFilm,
			[]string{"open-parts"}},
		"a stage that is divided without open parts": {settledParts,
			`update tasks set transcode_status = 'divided' where source = 'film'`,
			[]string{"completed-once", "needs-completed", "open-parts", "settled", "status-matches"}},
		"a divided stage": {invariant.Options{Settled: true},
			`update parts set status = 'completed', token = null, locked_at = null, locked_by = null` + part3OfHeld,
			[]string{"attempt-counter", "open-parts", "settled", "status-matches"}},
		"an open part of a completed stage": {settledParts,
			`update parts set status = 'pending'` + part2OfFilm + `;
			 update tasks set transcode_open_parts = 1 where source = 'film'`,
			[]string{"completed-once", "open-part", "settled"}},
		"a part in progress of a dead stage": {busyParts,
			`update tasks set transcode_status = 'dead' where source = 'held'`,
			[]string{"open-part", "status-matches"}},
		"a cancelled part of a divided stage": {busyParts,
			`update parts set status = 'cancelled', run_at = null where status = 'failed'`,
			[]string{"open-part"}},
		"an old claim of a part": {busyParts,
			`update workers set heartbeat_at = now() - interval '2 minutes';
			 update parts set locked_at = now() - interval '2 minutes'` + part3OfHeld + `;
			 update attempts set started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour'`,
			[]string{"orphaned"}},
		"a part whose token was used before": {busyParts,
			`update parts set token = (select token from attempts` + part2OfBumpy + ` limit 1)` + part3OfHeld,
			[]string{"unique-token"}},
		"a part that was completed twice": {settledParts,
			`insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, outcome)
			 select task_id, gen_random_uuid(), stage, part, 2, worker_id, now(), outcome from attempts` + part2OfFilm + `;
			 update parts set attempts = 2` + part2OfFilm,
			[]string{"completed-once", "completed-stays"}},
		"a part that was completed without an attempt": {settledParts,
			`delete from attempts` + part2OfFilm + `; update parts set attempts = 0` + part2OfFilm,
			[]string{"completed-once", "joined-last", "status-matches"}},
		"a part that started before the stage that its stage needs": {settledParts,
			`update attempts set started_at = started_at - interval '11 seconds'` + part2OfFilm,
			[]string{"needs-first"}},
		"a claim of a part that is missing in the history": {settledParts,
			`delete from attempts` + part2OfBumpy + ` and outcome = 'failed'`,
			[]string{"attempt-numbers"}},
		"a counter of a part that counts a released attempt": {settledParts,
			`update parts set attempts = 3` + part2OfBumpy,
			[]string{"attempt-counter"}},
		"a counter of a stage that counts its division": {settledParts,
			`update tasks set transcode_attempts = 2 where source = 'film'`,
			[]string{"attempt-counter"}},
		"a part with one attempt too many": {settledParts,
			`update attempts set attempt = attempt + 1` + part2OfBumpy + ` and outcome <> 'failed';
			 update parts set attempts = 3` + part2OfBumpy + `;
			 insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, finished_at, outcome)
			 select task_id, gen_random_uuid(), stage, part, 2, worker_id, started_at,
			        finished_at + interval '1 microsecond', 'expired'
			   from attempts` + part2OfBumpy + ` and outcome = 'failed'`,
			[]string{"attempt-limit"}},
		"a join that started before the end of a part": {settledParts,
			`update attempts set started_at = started_at - interval '11 seconds'
			  where task_id = (select id from tasks where source = 'film') and part is null
			    and stage = 'transcode' and outcome = 'completed'`,
			[]string{"joined-last", "needs-first"}},
		"a join that ended before a part": {settledParts,
			`update attempts set finished_at = finished_at + interval '1 hour'` + part2OfFilm,
			[]string{"joined-last"}},
		"a part that was completed twice after a division again": {settledParts,
			`insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, outcome)
			 select task_id, gen_random_uuid(), stage, part, 2, worker_id, now(), outcome from attempts` + part2OfLost + ` limit 1;
			 update parts set attempts = 2` + part2OfLost,
			[]string{"completed-once", "completed-stays"}},
		"a part that was not done again after a division": {settledParts,
			`delete from attempts` + part2OfLost + ` and finished_at = (select max(finished_at) from attempts` + part2OfLost + `)`,
			[]string{"kept-parts"}},
		"a kept part that was done again": {settledParts,
			`update outbox set data = data || '{"kept": 3}' where data ? 'kept' and data->>'parts' = '4'`,
			[]string{"kept-parts"}},
		"a division because of an error that does not count": {settledParts,
			`update attempts set error = null where outcome = 'divided' and error is not null`,
			[]string{"attempt-numbers"}},
		"an attempt at a part of a stage that does not divide": {settledParts,
			`update attempts set part = 1 where stage = 'publish' and task_id = (select id from tasks where source = 'film');
			 update tasks set publish_status = 'cancelled', publish_attempts = 0 where source = 'film'`,
			[]string{"valid-history"}},
		"a completed part without an event": {settledParts,
			`delete from outbox where type = 'part_completed'`,
			[]string{"event-status"}},
		"a claim of a part without an event": {busyParts,
			`update outbox set parts = array(select 4 + n from unnest(parts) as n) where type = 'started' and 3 = any(parts)`,
			[]string{"event-status"}},
		"a failed part without an event": {busyParts,
			`delete from outbox where type in ('retry_scheduled', 'attempt_failed') and part = 2`,
			[]string{"event-status"}},
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
			f.exec(dropGuards + dropPartGuards)
			if !strings.Contains(c.change, "outbox") && !slices.Contains(c.violated, "kept-parts") {
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
