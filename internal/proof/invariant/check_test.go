package invariant_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

var (
	settled = invariant.Options{
		Settled: true, NoRetries: true, MaxOrphanTime: time.Minute, MaxAttempts: []int{2, 2, 2, 2, 2},
		Committed: []string{"plain", "bumpy", "dead", "cancelled"}, RolledBack: []string{"undone"},
	}
	busy = invariant.Options{NoRetries: true, MaxOrphanTime: time.Minute, MaxAttempts: []int{2, 2, 2, 2, 2}}
	// retried allows every operator action.
	retried = invariant.Options{}
)

// two is a limit that three exceeds.
func two() *int { n := 2; return &n }

// dropGuards drops the triggers and constraints that prevent forbidden states.
const dropGuards = `
alter table tasks disable trigger user;
alter table steps disable trigger user;
do $$
declare c record;
begin
  for c in select conname, conrelid::regclass as of from pg_constraint
            where conrelid in ('tasks'::regclass, 'steps'::regclass) and contype in ('c', 'f') loop
    execute format('alter table %s drop constraint %I', c.of, c.conname);
  end loop;
end
$$;
alter table attempts drop constraint attempts_pkey;`

const (
	plain     = ` where task_id = (select id from tasks where source = 'plain')`
	bumpy     = ` where task_id = (select id from tasks where source = 'bumpy')`
	transcode = ` and stage = 'transcode'`
	held      = ` where task_id = (select id from tasks where source = 'held') and stage = 'transcode'`
	// insertClaim inserts a task with a claim of a worker, which follows.
	insertClaim = `insert into tasks (id, source, ingest_status) values ('018f0000-0000-7000-8000-000000000001', 'new', 'inprogress');
		insert into steps (task_id, stage, status, rank, turn, attempts, token, locked_at, locked_by)
		select '018f0000-0000-7000-8000-000000000001', 'ingest', 'running', 0, 0, 1, gen_random_uuid(), now(), `
	// failHeld ends the claim of the task that has one.
	failHeld = `insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
			select task_id, token, stage, attempts, locked_by, locked_at, 'failed' from steps where token is not null;
		update tasks set transcode_status = 'failed' where source = 'held';
		update steps set status = 'ready', token = null, locked_at = null, locked_by = null` + held + `;
		`
	insertStep = `insert into steps (task_id, stage, rank, turn) select id, `
)

// deletePlain deletes a task with an event. The triggers are disabled.
const (
	deletePlain = `
insert into outbox (type, task_id) select 'submitted', id from tasks where source = 'plain';
select cuelight_video_delete(id) from tasks where source = 'plain';
insert into outbox (type, task_id) select 'deleted', id from deleted_tasks;
`
	ofDeleted = ` where task_id = (select id from deleted_tasks)`
)

func TestCheck_FindsEachViolation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options  invariant.Options
		change   string
		violated []string
	}{
		"an acknowledged submission without a task": {settled,
			`delete from tasks where source = 'plain';
			 delete from attempts a where not exists (select from tasks where id = a.task_id)`,
			[]string{"committed"}},
		"a task of a rolled-back submission": {settled,
			`update tasks set request_id = 'undone' where source = 'plain'`,
			[]string{"committed", "rolled-back"}},
		"a task that three later ones overtook": {invariant.Options{MaxOvertaking: two()},
			`update attempts set started_at = finished_at` + plain + ` and stage = 'ingest'`,
			[]string{"overtaken"}},
		"a task that later ones overtook before it was ready": {invariant.Options{MaxOvertaking: two()},
			`update attempts set finished_at = finished_at + interval '1 hour'` + plain + `;
			 update attempts set started_at = started_at + interval '1 hour'` + plain + ` and stage <> 'ingest'`,
			nil},
		"a pending task": {settled,
			`insert into tasks (id, source) values ('018f0000-0000-7000-8000-000000000001', 'new');
			 ` + insertStep + `'ingest', 0, 0 from tasks where source = 'new'`,
			[]string{"settled"}},
		"a scheduled task": {settled,
			`insert into tasks (source, scheduled_at) values ('new', now() + interval '1 hour');
			 insert into steps (task_id, stage, status, run_at, rank, turn) select id, 'ingest', 'waiting', scheduled_at, 0, 0
			   from tasks where source = 'new'`,
			[]string{"settled"}},
		"a claim in progress": {settled,
			insertClaim + `id from workers`,
			[]string{"settled"}},
		"a claim of a lost worker": {settled,
			insertClaim + `id from workers; update workers set lost_at = now()`,
			[]string{"live-owner", "settled"}},
		"a claim of an unregistered worker": {settled,
			insertClaim + `gen_random_uuid()`,
			[]string{"live-owner", "settled"}},
		"an old claim of a worker without heartbeats": {busy,
			`update workers set heartbeat_at = now() - interval '2 minutes';
			 update steps set locked_at = now() - interval '2 minutes'` + held + `;
			 update attempts set started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour'`,
			[]string{"orphaned"}},
		"an old claim of a stopped worker": {busy,
			`update workers set stopped_at = now() - interval '2 minutes';
			 update steps set locked_at = now() - interval '3 minutes'` + held + `;
			 update attempts set started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour'`,
			[]string{"orphaned"}},
		"a token used twice": {settled,
			`update attempts set token = (select token from attempts` + bumpy + ` limit 1)` + plain + transcode,
			[]string{"unique-token"}},
		"a token of the history used again": {busy,
			`update steps set token = (select token from attempts` + bumpy + ` limit 1)` + held,
			[]string{"unique-token"}},
		"a stage completed before the stage it needs": {retried,
			`update tasks set ingest_status = 'pending' where source = 'plain';
			 ` + insertStep + `'ingest', 0, 0 from tasks where source = 'plain'`,
			[]string{"needs-completed"}},
		"an attempt without the attempt it needs": {settled,
			`delete from attempts` + plain + ` and stage = 'ingest';
			 update tasks set ingest_status = 'dead' where source = 'plain'`,
			[]string{"needs-completed", "needs-first", "status-matches"}},
		"an attempt that started before the stage it needs was completed": {settled,
			`update attempts set started_at = started_at - interval '11 seconds'` + plain + transcode,
			[]string{"needs-first"}},
		"an attempt that ended before the stage it needs was completed": {settled,
			`update attempts set finished_at = started_at` + plain + ` and stage = 'publish';
			 update attempts set finished_at = finished_at + interval '1 second'` + plain + ` and stage = 'assemble'`,
			[]string{"needs-first"}},
		"a fan-in that started twice": {settled,
			`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
			 select task_id, gen_random_uuid(), stage, 2, worker_id, now(), outcome
			   from attempts` + plain + ` and stage = 'assemble'`,
			[]string{"completed-once", "completed-stays"}},
		"a stage completed without an attempt": {settled,
			`delete from attempts` + plain + ` and stage = 'publish'`,
			[]string{"completed-once", "status-matches"}},
		"a completed stage that was cancelled": {settled,
			`update tasks set publish_status = 'cancelled' where source = 'plain'`,
			[]string{"completed-once"}},
		"a completed stage that started again": {retried,
			`update tasks set publish_status = 'inprogress' where source = 'plain';
			 insert into steps (task_id, stage, status, rank, turn, attempts, token, locked_at, locked_by)
			 select t.id, 'publish', 'running', 0, 0, 2, gen_random_uuid(), now(), w.id from tasks t, workers w where source = 'plain'`,
			[]string{"completed-stays"}},
		"a status that contradicts the history": {settled,
			`update tasks set publish_status = 'dead' where source = 'plain'`,
			[]string{"completed-once", "status-matches"}},
		"a failure that is not in the history": {busy,
			`update tasks set transcode_status = 'failed' where source = 'held';
			 update steps set status = 'ready', token = null, locked_at = null, locked_by = null` + held,
			[]string{"attempt-counter", "status-matches"}},
		"a claim that is missing in the history": {retried,
			`delete from attempts` + bumpy + transcode + ` and outcome = 'failed';
			 update attempts set attempt = 3` + bumpy + transcode + ` and outcome = 'completed'`,
			[]string{"attempt-numbers"}},
		"a counter that is one too high": {retried,
			failHeld + `update steps set attempts = 2` + held,
			[]string{"attempt-counter"}},
		"a counter that was reset without a retry": {busy,
			failHeld + `update steps set attempts = 0` + held,
			[]string{"attempt-counter"}},
		"attempts that were renumbered without a retry": {settled,
			`update attempts set attempt = 1` + bumpy + transcode + ` and outcome <> 'failed'`,
			[]string{"no-renumbering"}},
		"one attempt too many": {settled,
			`update attempts set attempt = attempt + 1` + bumpy + transcode + ` and outcome <> 'failed';
			 insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome)
			 select task_id, gen_random_uuid(), stage, 2, worker_id, started_at,
					finished_at + interval '1 microsecond', 'expired'
			   from attempts` + bumpy + transcode + ` and outcome = 'failed'`,
			[]string{"attempt-limit"}},
		"one attempt too many that is due": {busy,
			`update tasks set transcode_status = 'failed' where source = 'held';
			 update steps set status = 'ready', attempts = 2, token = null, locked_at = null, locked_by = null` + held + `;
			 insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
			 select id, gen_random_uuid(), 'transcode', n, gen_random_uuid(), now(), 'expired'
			   from tasks, generate_series(1, 2) as n where source = 'held'`,
			[]string{"attempt-limit"}},
		"a history without its task": {settled,
			`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
			 values (gen_random_uuid(), gen_random_uuid(), 'ingest', 1, gen_random_uuid(), now(), 'failed')`,
			[]string{"valid-history"}},
		"a change without an event": {retried,
			`delete from outbox where type = 'cancelled'`,
			[]string{"event-outcome", "event-status"}},
		"a finished task without an event": {settled,
			`delete from outbox where type in ('completed', 'cancelled')`,
			[]string{"event-outcome", "event-status"}},
		"an attempt at an unknown stage": {settled,
			`update attempts set stage = 'nonsense'` + plain + ` and stage = 'publish';
			 update tasks set publish_status = 'cancelled' where source = 'plain'`,
			[]string{"valid-history"}},
		"a step of an unknown stage": {settled,
			insertStep + `'nonsense', 0, 0 from tasks where source = 'plain'`,
			[]string{"closed-step"}},
		"a step without its task": {settled,
			`insert into steps (task_id, stage, rank, turn) values (gen_random_uuid(), 'ingest', 0, 0)`,
			[]string{"closed-step"}},
		"a step of a completed stage": {settled,
			insertStep + `'publish', 0, 0 from tasks where source = 'plain'`,
			[]string{"attempt-counter", "closed-step"}},
		"a step of a dead stage": {retried,
			insertStep + `'transcode', 0, 0 from tasks where source = 'dead'`,
			[]string{"closed-step"}},
		"a step of a blocked stage": {settled,
			insertStep + `'publish', 0, 0 from tasks where source = 'dead'`,
			[]string{"closed-step"}},
		"a ready stage without a step": {retried,
			`insert into tasks (source) values ('new')`,
			[]string{"open-step"}},
		"a claimed stage whose step is ready": {retried,
			`update steps set status = 'ready', token = null, locked_at = null, locked_by = null` + held,
			[]string{"attempt-counter", "open-step", "status-matches"}},
		"a pending stage whose step is claimed": {retried,
			`update tasks set transcode_status = 'pending' where source = 'held'`,
			[]string{"open-step"}},
		"a step with a lower priority than its task": {retried,
			`update tasks set priority = 1 where source = 'held'`,
			[]string{"step-order"}},
		"a step of another user": {retried,
			`update tasks set user_id = 'ann' where source = 'held'`,
			[]string{"step-order"}},
		"a step without the placement of its task": {retried,
			`insert into tasks (id, source, placement) values ('018f0000-0000-7000-8000-000000000001', 'new', '{"ingest": {}}');
			 ` + insertStep + `'ingest', 0, 0 from tasks where source = 'new'`,
			[]string{"step-order"}},
		"a deleted task that exists": {retried,
			`insert into deleted_tasks (id, task) select id, to_jsonb(t) from tasks t where source = 'plain'`,
			[]string{"deleted"}},
		"an attempt that started after a deletion": {retried,
			deletePlain + `update attempts set started_at = clock_timestamp(), finished_at = clock_timestamp()` + ofDeleted +
				` and stage = 'publish'`,
			[]string{"deleted-work"}},
		"an attempt that was recorded after a deletion": {retried,
			deletePlain + `update attempts set finished_at = clock_timestamp()` + ofDeleted + ` and stage = 'publish'`,
			[]string{"deleted-work"}},
		"a history of a purged task": {retried,
			deletePlain + `delete from deleted_tasks; insert into outbox (type, task_id) select 'purged', task_id from attempts` +
				` where task_id not in (select id from tasks) limit 1`,
			[]string{"valid-history"}},
		"a deletion without an event": {retried,
			deletePlain + `delete from outbox where type = 'deleted'`,
			[]string{"event-deleted"}},
		"work after a deletion": {retried,
			deletePlain + `insert into outbox (type, tasks, stages, parts, attempts)
				select 'started', array[id], '{publish}', '{0}', '{1}' from deleted_tasks`,
			[]string{"event-deleted"}},
		"an attempt without an event": {settled,
			`update attempts set event_id = null` + plain + ` and stage = 'publish'`,
			[]string{"event-ids", "event-status"}},
		"an event of a cancelled attempt": {settled,
			`update attempts set event_id = nextval('outbox_id') where outcome = 'cancelled'`,
			[]string{"event-ids"}},
		"two events with one id": {settled,
			`update attempts set event_id = (select min(event_id) from attempts` + bumpy + `)` + plain + ` and stage = 'ingest'`,
			[]string{"event-ids"}},
		"an attempt that ended before it started": {settled,
			`update attempts set finished_at = started_at - interval '1 second'` + plain + ` and stage = 'ingest'`,
			[]string{"valid-history"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.populate(!c.options.Settled || strings.Contains(c.change, held))
			if violated, details := f.check(c.options); len(violated) > 0 {
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

func isOfEvents(rule string) bool { return strings.HasPrefix(rule, "event-") }

func TestCheck_AcceptsOperatorRetries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.populate(true)
	for _, from := range []string{"transcode", "", "ingest", "publish", ""} {
		if _, err := f.RetryAll(t.Context(), store.Filter{}, from, store.RetryAllOptions{}); err != nil {
			t.Fatal(err)
		}
		if violated, details := f.check(retried); len(violated) > 0 {
			t.Fatalf("after a retry from %q, %v are violated:\n%s", from, violated, strings.Join(details, "\n"))
		}
		f.work(func(stage, source string, _ int) engine.Report {
			if stage == "assemble" && source == "bumpy" {
				return engine.Report{Outcome: engine.Failed, Dead: true}
			}
			return engine.Report{Outcome: engine.Completed}
		})
		if violated, details := f.check(invariant.Options{Settled: true, MaxOrphanTime: time.Minute}); len(violated) > 0 {
			t.Fatalf("after a retry from %q and its work, %v are violated:\n%s", from, violated, strings.Join(details, "\n"))
		}
	}
	violated, _ := f.check(settled)
	if !slices.Contains(violated, "completed-once") || !slices.Contains(violated, "no-renumbering") {
		t.Errorf("with NoRetries, the violated rules are %v; want completed-once and no-renumbering, too", violated)
	}
}

func TestCheck_AcceptsDeletedAndRestoredTasks(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.populate(true)
	tasks, err := f.List(t.Context(), store.ListQuery{})
	if err != nil {
		t.Fatal(err)
	}
	accept := func(when string, o invariant.Options) {
		t.Helper()
		if violated, details := f.check(o); len(violated) > 0 {
			t.Fatalf("%s, %v are violated:\n%s", when, violated, strings.Join(details, "\n"))
		}
	}
	for _, task := range tasks {
		if err := f.Delete(t.Context(), task.ID, store.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	accept("after deletions", busy)
	for _, task := range tasks {
		if err := f.Undelete(t.Context(), task.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	accept("after they were undone", busy)
	f.work(func(string, string, int) engine.Report { return engine.Report{Outcome: engine.Completed} })
	accept("after their work", settledWith([]string{"plain", "bumpy", "dead", "cancelled", "held"}))
	purged := tasks[0].ID
	if err := f.Delete(t.Context(), purged, store.DeleteOptions{Purge: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ClaimToPurge(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	if err := f.Store.Purge(t.Context(), purged, ""); err != nil {
		t.Fatal(err)
	}
	accept("after a purge", invariant.Options{Settled: true, NoRetries: true})
}

func TestCheck_ExcusesOfARestoredTaskOnlyTheClaimThatItsDeletionCancelled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		rule   string
	}{
		"a claim that ended without an event": {`
			alter table tasks disable trigger user; alter table steps disable trigger user;
			delete from steps where status = 'running'; update tasks set ingest_status = 'pending';
			insert into steps (task_id, stage, rank, turn) select id, 'ingest', 0, 0 from tasks`, "event-status"},
		"a claim that was cancelled by another transaction": {
			`update attempts set outcome = 'cancelled' where outcome = 'cancelled'`, "no-renumbering"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			r, err := f.Submit(t.Context(), store.Submission{Source: "a"})
			if err != nil {
				t.Fatal(err)
			}
			claim := func() { f.work(func(string, string, int) engine.Report { return engine.Report{} }) }
			claim()
			if err := f.Delete(t.Context(), r.ID, store.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := f.Undelete(t.Context(), r.ID, ""); err != nil {
				t.Fatal(err)
			}
			claim()
			if violated, details := f.check(invariant.Options{NoRetries: true}); len(violated) > 0 {
				t.Fatalf("a restored task violates %v:\n%s", violated, strings.Join(details, "\n"))
			}
			f.exec(c.change)
			if violated, details := f.check(invariant.Options{NoRetries: true}); !slices.Contains(violated, c.rule) {
				t.Errorf("violated rules are %v, want %s, too\n%s", violated, c.rule, strings.Join(details, "\n"))
			}
		})
	}
}

func TestCheck_ChecksCustomPipelines(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, nodes := range [][]store.Node{
		{{Name: "select"}, {Name: "from", Needs: []string{"select"}}},
		{{Name: "alone"}},
	} {
		g, err := store.NewGraph("p"+nodes[0].Name, nodes...)
		if err != nil {
			t.Fatal(err)
		}
		s := store.New(f.pool, g)
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Submit(t.Context(), store.Submission{Source: "a"}); err != nil {
			t.Fatal(err)
		}
		o := invariant.Options{
			Settled: true, NoRetries: true, MaxOrphanTime: time.Second, MaxAttempts: slices.Repeat([]int{1}, len(nodes)),
		}
		found, err := invariant.Check(t.Context(), f.pool, g, o)
		if err != nil || len(found) != 1 || found[0].Rule != "settled" {
			t.Errorf("found %v, %v; want the one task that is not finished", found, err)
		}
	}
}

func TestCheck_FailsWithoutTables(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	if found, err := invariant.Check(t.Context(), pool, store.Video(), invariant.Options{}); err == nil {
		t.Errorf("found %v and no error in a database without tables", found)
	}
}

func TestViolation_NamesRuleAndDetail(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r, err := f.Submit(t.Context(), store.Submission{Source: "a"})
	if err != nil {
		t.Fatal(err)
	}
	_, details := f.check(settledWith(nil))
	want := "settled: stage ingest of task " + r.ID.String() + " is pending, and could run " +
		"(once faults have stopped, every task is finished)"
	if !slices.Equal(details, []string{want}) {
		t.Errorf("details are %q, want %q", details, want)
	}
}

func settledWith(committed []string) invariant.Options {
	o := settled
	o.Committed = committed
	return o
}
