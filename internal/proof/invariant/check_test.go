package invariant_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a database with the video pipeline and a worker.
type bench struct {
	*store.Store
	t      *testing.T
	pool   *pgxpool.Pool
	worker store.ID
}

func setup(t *testing.T) bench {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	b := bench{store.New(pool, g), t, pool, store.ID{}}
	err := pool.QueryRow(t.Context(), `insert into workers (pipeline, host, pid) values ('video', 'test', 1) returning id`).Scan(&b.worker)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bench) exec(sql string) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		b.t.Fatalf("%v\n%s", err, sql)
	}
}

// work claims what is ready and ends each claim as end says, "" for keeping it,
// until nothing is ready.
func (b bench) work(end func(stage, source string, attempt int) store.Report) {
	b.t.Helper()
	n := len(b.Graph().Stages())
	in := store.ExchangeRequest{Worker: b.worker, FreeSlots: make([]int, n), ClaimFrom: make([]bool, n)}
	for i := range n {
		in.FreeSlots[i], in.ClaimFrom[i] = 10, true
	}
	for {
		out, err := b.Exchange(b.t.Context(), in)
		if err != nil {
			b.t.Fatal(err)
		}
		in.Reports = nil
		for _, c := range out.Claims {
			r := end(b.Graph().Stages()[c.Stage], c.Source, c.Attempt)
			r.Task, r.Stage, r.Token = c.Task, c.Stage, c.Token
			if r.Outcome != "" {
				in.Reports = append(in.Reports, r)
			}
		}
		if len(out.Claims) == 0 {
			return
		}
	}
}

// tasks of every kind: one that went through, one that failed, was released
// and went through, one that died, one that was cancelled at work; and, when
// held, one that is worked on.
func (b bench) populate(held bool) {
	b.t.Helper()
	sources := []string{"plain", "bumpy", "dead", "cancelled"}
	if held {
		sources = append(sources, "held")
	}
	ids := make(map[string]store.ID)
	for _, s := range sources {
		r, err := b.Submit(b.t.Context(), store.Submission{Source: s, RequestID: s})
		if err != nil {
			b.t.Fatal(err)
		}
		ids[s] = r.ID
	}
	released := false
	b.work(func(stage, source string, attempt int) store.Report {
		switch {
		case stage != "transcode" || source == "plain":
		case source == "bumpy" && attempt == 1:
			return store.Report{Outcome: store.Failed, Error: "no luck"}
		case source == "bumpy" && !released:
			released = true
			return store.Report{Outcome: store.Released}
		case source == "dead":
			return store.Report{Outcome: store.Failed, Error: "never", Dead: true}
		case source == "cancelled", source == "held":
			return store.Report{}
		}
		return store.Report{Outcome: store.Completed}
	})
	if err := b.Cancel(b.t.Context(), ids["cancelled"]); err != nil {
		b.t.Fatal(err)
	}
}

// check returns the names of the rules that are broken.
func (b bench) check(o invariant.Options) (broken, details []string) {
	b.t.Helper()
	violations, err := invariant.Check(b.t.Context(), b.pool, b.Graph(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		if !slices.Contains(broken, v.Rule) {
			broken = append(broken, v.Rule)
		}
		details = append(details, v.String())
	}
	slices.Sort(broken)
	return broken, details
}

var (
	settled = invariant.Options{
		Settled: true, NoRetries: true, HeldAtMost: time.Minute, MaxAttempts: []int{2, 2, 2, 2, 2},
		Committed: []string{"plain", "bumpy", "dead", "cancelled"}, RolledBack: []string{"undone"},
	}
	busy = invariant.Options{NoRetries: true, HeldAtMost: time.Minute, MaxAttempts: []int{2, 2, 2, 2, 2}}
	// retried is a database in which an operator may have done anything.
	retried = invariant.Options{}
)

// two is a number that three exceeds.
func two() *int { n := 2; return &n }

// unguarded drops what keeps such states from being made by hand.
const unguarded = `
alter table tasks disable trigger user;
do $$
declare c text;
begin
  for c in select conname from pg_constraint where conrelid = 'tasks'::regclass and contype = 'c' loop
    execute format('alter table tasks drop constraint %I', c);
  end loop;
end
$$;
alter table attempts drop constraint attempts_pkey;`

const (
	plain     = ` where task_id = (select id from tasks where source = 'plain')`
	bumpy     = ` where task_id = (select id from tasks where source = 'bumpy')`
	transcode = ` and stage = 'transcode'`
)

func TestEveryRuleFindsTheStateItForbids(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options invariant.Options
		change  string
		broken  []string
	}{
		"a submission that is gone": {settled,
			`delete from tasks where source = 'plain'; delete from attempts a where not exists (select from tasks where id = a.task_id)`,
			[]string{"committed"}},
		"a submission that was undone": {settled,
			`update tasks set request_id = 'undone' where source = 'plain'`,
			[]string{"committed", "rolled-back"}},
		"a task that three later ones passed": {invariant.Options{PassedAtMost: two()},
			`update attempts set started_at = finished_at` + plain + ` and stage = 'ingest'`,
			[]string{"passed"}},
		"a task that later ones passed before it was ready": {invariant.Options{PassedAtMost: two()},
			`update attempts set finished_at = finished_at + interval '1 hour'` + plain + `;
			 update attempts set started_at = started_at + interval '1 hour'` + plain + ` and stage <> 'ingest'`,
			nil},
		"a task nobody works on": {settled,
			`insert into tasks (source) values ('new')`,
			[]string{"ended"}},
		"a task that waits": {settled,
			`insert into tasks (source, ingest_run_at) values ('new', now() + interval '1 hour')`,
			[]string{"ended"}},
		"a claim that nobody ends": {settled,
			`insert into tasks (source, ingest_status, ingest_attempts, ingest_token, ingest_locked_at, ingest_locked_by)
			 select 'new', 'inprogress', 1, gen_random_uuid(), now(), id from workers`,
			[]string{"ended"}},
		"a claim of a worker that is gone": {settled,
			`insert into tasks (source, ingest_status, ingest_attempts, ingest_token, ingest_locked_at, ingest_locked_by)
			 select 'new', 'inprogress', 1, gen_random_uuid(), now(), id from workers;
			 update workers set lost_at = now()`,
			[]string{"alive", "ended"}},
		"a claim of a worker that never was": {settled,
			`insert into tasks (source, ingest_status, ingest_attempts, ingest_token, ingest_locked_at, ingest_locked_by)
			 values ('new', 'inprogress', 1, gen_random_uuid(), now(), gen_random_uuid())`,
			[]string{"alive", "ended"}},
		"a claim held by a worker that is silent": {busy,
			`update workers set heartbeat_at = now() - interval '2 minutes';
			 update tasks set transcode_locked_at = now() - interval '2 minutes' where source = 'held';
			 update attempts set started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour'`,
			[]string{"held-long"}},
		"a claim held by a worker that stopped": {busy,
			`update workers set stopped_at = now() - interval '2 minutes';
			 update tasks set transcode_locked_at = now() - interval '3 minutes' where source = 'held';
			 update attempts set started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour'`,
			[]string{"held-long"}},
		"a token drawn twice": {settled,
			`update attempts set token = (select token from attempts` + bumpy + ` limit 1)` + plain + transcode,
			[]string{"token-unique"}},
		"a token of the history drawn again": {busy,
			`update tasks set transcode_token = (select token from attempts` + bumpy + ` limit 1) where source = 'held'`,
			[]string{"token-unique"}},
		"a stage done before what it needs": {retried,
			`update tasks set ingest_status = 'pending' where source = 'plain'`,
			[]string{"needs"}},
		"an attempt without what it needs": {settled,
			`delete from attempts` + plain + ` and stage = 'ingest'; update tasks set ingest_status = 'dead', ingest_attempts = 0 where source = 'plain'`,
			[]string{"agrees", "needs", "order"}},
		"an attempt that began before what it needs was done": {settled,
			`update attempts set started_at = started_at - interval '11 seconds'` + plain + transcode,
			[]string{"order"}},
		"an attempt that ended before what it needs was done": {settled,
			`update attempts set finished_at = started_at` + plain + ` and stage = 'publish';
			 update attempts set finished_at = finished_at + interval '1 second'` + plain + ` and stage = 'assemble'`,
			[]string{"order"}},
		"a fan-in that fired twice": {settled,
			`update tasks set assemble_attempts = 2 where source = 'plain';
			 insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
			 select task_id, gen_random_uuid(), stage, 2, worker_id, now(), outcome from attempts` + plain + ` and stage = 'assemble'`,
			[]string{"completed-stays", "once"}},
		"a stage completed without an attempt": {settled,
			`delete from attempts` + plain + ` and stage = 'publish'; update tasks set publish_attempts = 0 where source = 'plain'`,
			[]string{"agrees", "once"}},
		"a completed stage that was undone": {settled,
			`update tasks set publish_status = 'cancelled' where source = 'plain'`,
			[]string{"once"}},
		"a completed stage that is begun again": {retried,
			`update tasks set publish_status = 'inprogress', publish_attempts = 2, publish_token = gen_random_uuid(),
			        publish_locked_at = now(), publish_locked_by = (select id from workers) where source = 'plain'`,
			[]string{"completed-stays"}},
		"a status that the history does not bear out": {settled,
			`update tasks set publish_status = 'dead' where source = 'plain'`,
			[]string{"agrees", "once"}},
		"a failure of which nobody knows": {busy,
			`update tasks set transcode_status = 'failed', transcode_token = null, transcode_locked_at = null, transcode_locked_by = null
			  where source = 'held'`,
			[]string{"agrees", "counted"}},
		"a claim that never ended in the history": {retried,
			`delete from attempts` + bumpy + transcode + ` and outcome = 'failed';
			 update attempts set attempt = 3` + bumpy + transcode + ` and outcome = 'completed';
			 update tasks set transcode_attempts = 3 where source = 'bumpy'`,
			[]string{"numbered"}},
		"a counter that is one too high": {retried,
			`update tasks set transcode_attempts = 3 where source = 'bumpy'`,
			[]string{"counted"}},
		"a counter that was reset though nobody retried": {settled,
			`update tasks set transcode_attempts = 0 where source = 'bumpy'`,
			[]string{"counted"}},
		"attempts numbered anew though nobody retried": {settled,
			`update attempts set attempt = 1` + bumpy + transcode + ` and outcome <> 'failed';
			 update tasks set transcode_attempts = 1 where source = 'bumpy'`,
			[]string{"numbered-once"}},
		"an attempt too many": {settled,
			`update attempts set attempt = attempt + 1` + bumpy + transcode + ` and outcome <> 'failed';
			 update tasks set transcode_attempts = 3 where source = 'bumpy';
			 insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome)
			 select task_id, gen_random_uuid(), stage, 2, worker_id, started_at, finished_at + interval '1 microsecond', 'expired'
			   from attempts` + bumpy + transcode + ` and outcome = 'failed'`,
			[]string{"attempts-limit"}},
		"an attempt to come that is one too many": {busy,
			`update tasks set transcode_attempts = 2, transcode_status = 'failed', transcode_token = null, transcode_locked_at = null, transcode_locked_by = null
			  where source = 'held';
			 insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
			 select id, gen_random_uuid(), 'transcode', n, gen_random_uuid(), now(), 'expired' from tasks, generate_series(1, 2) as n where source = 'held'`,
			[]string{"attempts-limit"}},
		"a history without its task": {settled,
			`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
			 values (gen_random_uuid(), gen_random_uuid(), 'ingest', 1, gen_random_uuid(), now(), 'failed')`,
			[]string{"history"}},
		"a change nobody was told of": {retried,
			`delete from outbox where type = 'dead'`,
			[]string{"told", "told-end"}},
		"a change that ended elsewhen than nobody could be told of it": {
			invariant.Options{Untold: []invariant.Stretch{{From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(-time.Hour)}}},
			`delete from outbox where type = 'dead'`,
			[]string{"told", "told-end"}},
		"a change that nobody could be told of": {
			invariant.Options{Untold: []invariant.Stretch{{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)}}},
			`delete from outbox where type = 'dead'`,
			nil},
		"an end nobody was told of": {settled,
			`update outbox set completed = array(select bits & ~(1 << 31) from unnest(completed) as bits) where type = 'exchange';
			 delete from outbox where type = 'cancelled'`,
			[]string{"told", "told-end"}},
		"an attempt at no stage": {settled,
			`update attempts set stage = 'nonsense'` + plain + ` and stage = 'publish'; update tasks set publish_status = 'cancelled', publish_attempts = 0 where source = 'plain'`,
			[]string{"history"}},
		"an attempt that ended before it began": {settled,
			`update attempts set finished_at = started_at - interval '1 second'` + plain + ` and stage = 'ingest'`,
			[]string{"history"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.populate(!c.options.Settled)
			if broken, details := b.check(c.options); len(broken) > 0 {
				t.Fatalf("a healthy database breaks %v:\n%s", broken, strings.Join(details, "\n"))
			}
			b.exec(unguarded)
			if !strings.Contains(c.change, "outbox") {
				b.exec(`truncate outbox`) // which says what was there before, too
			}
			b.exec(c.change)
			broken, details := b.check(c.options)
			if !slices.Equal(broken, c.broken) {
				t.Errorf("broken are %v, want %v:\n%s", broken, c.broken, strings.Join(details, "\n"))
			}
		})
	}
}

func TestAnOperatorsRetriesBreakNoRule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.populate(true)
	for _, from := range []string{"transcode", "", "ingest", "publish", ""} {
		if _, err := b.RetryAll(t.Context(), store.Filter{}, from, store.RetryAllOptions{}); err != nil {
			t.Fatal(err)
		}
		if broken, details := b.check(retried); len(broken) > 0 {
			t.Fatalf("after a retry from %q %v are broken:\n%s", from, broken, strings.Join(details, "\n"))
		}
		b.work(func(stage, source string, _ int) store.Report {
			if stage == "assemble" && source == "bumpy" {
				return store.Report{Outcome: store.Failed, Dead: true}
			}
			return store.Report{Outcome: store.Completed}
		})
		if broken, details := b.check(invariant.Options{Settled: true, HeldAtMost: time.Minute}); len(broken) > 0 {
			t.Fatalf("after a retry from %q and the work %v are broken:\n%s", from, broken, strings.Join(details, "\n"))
		}
	}
	if broken, _ := b.check(settled); !slices.Contains(broken, "once") || !slices.Contains(broken, "numbered-once") {
		t.Errorf("to one who believes in no retries, broken are %v", broken)
	}
}

func TestAPipelineOfOnesOwnIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, nodes := range [][]store.Node{
		{{Name: "select"}, {Name: "from", Needs: []string{"select"}}},
		{{Name: "alone"}},
	} {
		g, err := store.NewGraph("p"+nodes[0].Name, nodes...)
		if err != nil {
			t.Fatal(err)
		}
		s := store.New(b.pool, g)
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Submit(t.Context(), store.Submission{Source: "a"}); err != nil {
			t.Fatal(err)
		}
		o := invariant.Options{Settled: true, NoRetries: true, HeldAtMost: time.Second, MaxAttempts: make([]int, len(nodes))}
		found, err := invariant.Check(t.Context(), b.pool, g, o)
		if err != nil || len(found) != 1 || found[0].Rule != "ended" {
			t.Errorf("found %v, %v; want the one task that has not ended", found, err)
		}
	}
}

func TestWhatCannotBeFoundOutIsAnError(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	if found, err := invariant.Check(t.Context(), pool, store.Video(), invariant.Options{}); err == nil {
		t.Errorf("without tables found %v and no error", found)
	}
}

func TestAViolationSaysWhichRuleItBreaksAndHow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, err := b.Submit(t.Context(), store.Submission{Source: "a"})
	if err != nil {
		t.Fatal(err)
	}
	_, details := b.check(settledWith(nil))
	want := "ended: stage ingest of task " + r.ID.String() + " is pending, and could go on (once faults have stopped, every task has come to an end)"
	if !slices.Equal(details, []string{want}) {
		t.Errorf("details are %q, want %q", details, want)
	}
}

func settledWith(committed []string) invariant.Options {
	o := settled
	o.Committed = committed
	return o
}
