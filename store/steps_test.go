package store_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// steps describes the steps of a task, in the order of stages and parts: "transcode ready", or "transcode/1 running" of a part.
func (b bundle) steps(id store.ID) []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `
		select stage || case when part > 0 then '/' || part else '' end || ' ' || status from steps where task_id = $1
		 order by array_position(array['ingest', 'transcode', 'metadata', 'assemble', 'publish'], stage), part`, id)
	must(b.t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(b.t, err)
	return steps
}

func (b bundle) wantSteps(what string, id store.ID, want string) {
	b.t.Helper()
	if got := strings.Join(b.steps(id), ", "); got != want {
		b.t.Errorf("%s: the steps are %q, want %q", what, got, want)
	}
}

// claimParts claims parts of the stage transcode.
func (b bundle) claimParts(w store.ID, n int) []engine.Claim {
	b.t.Helper()
	queue := b.Graph().Queue(transcode, true)
	in := engine.ExchangeRequest{Worker: w, FreeSlots: make([]int, queue+1), ClaimFrom: make([]bool, queue+1)}
	in.FreeSlots[queue], in.ClaimFrom[queue] = n, true
	out, err := b.Exchange(b.t.Context(), in)
	must(b.t, err)
	if len(out.Claims) != n {
		b.t.Fatalf("claimed %d parts, want %d", len(out.Claims), n)
	}
	return out.Claims
}

// divided submits a task whose stage transcode is divided into parts.
func (b bundle) divided(w store.ID, parts int) store.ID {
	b.t.Helper()
	id := b.submit()
	b.exchange(w, 0, []engine.Report{completed(b.claim(w, ingest))})
	r := completed(b.claim(w, transcode))
	r.Outcome, r.Parts = engine.Divided, slices.Repeat([]json.RawMessage{raw(`{}`)}, parts)
	b.exchange(w, 0, []engine.Report{r})
	return id
}

// stepStates make a task in some state, with the steps that it has then.
var stepStates = map[string]struct {
	make func(b bundle, w store.ID) store.ID
	want string
}{
	"new": {func(b bundle, _ store.ID) store.ID { return b.submit() }, "ingest ready"},
	"scheduled": {func(b bundle, _ store.ID) store.ID {
		return b.submitTask(store.Submission{Source: "a", NotBefore: time.Now().Add(time.Hour)})
	}, "ingest waiting"},
	"claimed": {func(b bundle, w store.ID) store.ID { return b.claimOf(w, b.submit()) }, "ingest running"},
	"failed": {func(b bundle, w store.ID) store.ID {
		id := b.submit()
		b.exchange(w, 0, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
		return id
	}, "ingest waiting"},
	"dead": {func(b bundle, w store.ID) store.ID {
		id := b.submit()
		r := failed(b.claim(w, ingest), 0)
		r.Dead = true
		b.exchange(w, 0, []engine.Report{r})
		return id
	}, ""},
	"ingested": {func(b bundle, w store.ID) store.ID {
		id := b.submit()
		b.exchange(w, 0, []engine.Report{completed(b.claim(w, ingest))})
		return id
	}, "transcode ready, metadata ready"},
	"completed": {func(b bundle, w store.ID) store.ID {
		id := b.submit()
		b.completeAll(w, b.claim(w, ingest))
		return id
	}, ""},
	"divided": {func(b bundle, w store.ID) store.ID {
		id := b.divided(w, 3)
		claims := b.claimParts(w, 2)
		b.exchange(w, 0, []engine.Report{completed(claims[0])})
		return id
	}, "transcode divided, transcode/1 completed, transcode/2 running, transcode/3 ready, metadata ready"},
	"divided and cancelled": {func(b bundle, w store.ID) store.ID {
		id := b.divided(w, 2)
		b.exchange(w, 0, []engine.Report{completed(b.claimParts(w, 1)[0])})
		must(b.t, b.Cancel(b.t.Context(), id))
		return id
	}, "transcode stopped, transcode/1 completed, transcode/2 stopped"},
	"joined": {func(b bundle, w store.ID) store.ID {
		id := b.joinable(w)
		b.claim(w, transcode)
		return id
	}, "transcode running, transcode/1 completed, transcode/2 completed, metadata ready"},
	"joined and cancelled": {func(b bundle, w store.ID) store.ID {
		id := b.joinable(w)
		must(b.t, b.Cancel(b.t.Context(), id))
		return id
	}, "transcode stopped, transcode/1 completed, transcode/2 completed"},
	"joined and completed": {func(b bundle, w store.ID) store.ID {
		id := b.joinable(w)
		b.exchange(w, 0, []engine.Report{completed(b.claim(w, transcode))})
		return id
	}, "transcode/1 completed, transcode/2 completed, metadata ready"},
}

// claimOf claims the first stage of a task.
func (b bundle) claimOf(w, id store.ID) store.ID {
	b.t.Helper()
	b.claim(w, ingest)
	return id
}

// byHand are changes of statuses by hand, and the steps that follow.
var byHand = []struct{ state, change, want string }{
	{"new", "ingest = completed", "transcode ready, metadata ready"},
	{"new", "ingest = completed, transcode = completed", "metadata ready"},
	{"new", "ingest = failed", "ingest ready"},
	{"new", "ingest = dead", ""},
	{"new", "ingest = cancelled", ""},
	{"new", "metadata = cancelled", "ingest ready"},
	{"scheduled", "ingest = completed", "transcode ready, metadata ready"},
	{"scheduled", "ingest = cancelled", ""},
	{"claimed", "ingest = pending", "ingest ready"},
	{"claimed", "ingest = failed", "ingest ready"},
	{"claimed", "ingest = completed", "transcode ready, metadata ready"},
	{"claimed", "ingest = dead", ""},
	{"claimed", "ingest = cancelled", ""},
	{"failed", "ingest = pending", "ingest waiting"},
	{"failed", "ingest = dead", ""},
	{"failed", "ingest = completed", "transcode ready, metadata ready"},
	{"dead", "ingest = pending", "ingest ready"},
	{"dead", "ingest = failed", "ingest ready"},
	{"dead", "ingest = cancelled", ""},
	{"dead", "ingest = completed", "transcode ready, metadata ready"},
	{"ingested", "ingest = pending", "ingest ready"},
	{"ingested", "transcode = completed", "metadata ready"},
	{"ingested", "transcode = completed, metadata = completed", "assemble ready"},
	{"ingested", "transcode = dead, metadata = completed", ""},
	{"ingested", "transcode = completed, metadata = completed, assemble = completed, publish = completed", ""},
	{"completed", "publish = pending", "publish ready"},
	{"completed", "publish = cancelled", ""},
	{"completed", "transcode = pending, assemble = pending, publish = pending", "transcode ready"},
	{"divided", "transcode = completed", "transcode/1 completed, metadata ready"},
	{"divided", "transcode = dead", "transcode stopped, transcode/1 completed, transcode/2 stopped, transcode/3 stopped, metadata ready"},
	{"divided", "transcode = cancelled", "transcode stopped, transcode/1 completed, transcode/2 stopped, transcode/3 stopped, metadata ready"},
	{"divided", "transcode = pending", "transcode ready, metadata ready"}, // is divided afresh
	{"divided", "transcode = failed", "transcode ready, metadata ready"},
	{"divided", "ingest = pending, transcode = pending", "ingest ready"},
	{"divided", "metadata = dead", "transcode divided, transcode/1 completed, transcode/2 running, transcode/3 ready"},
	{"divided and cancelled", "transcode = dead", "transcode stopped, transcode/1 completed, transcode/2 stopped"},
	{"divided and cancelled", "transcode = pending", "transcode ready"},
	{"divided and cancelled", "transcode = completed", "transcode/1 completed"},
	{"divided and cancelled", "ingest = pending, transcode = pending", "ingest ready"},
	{"joined", "transcode = pending", "transcode ready, transcode/1 completed, transcode/2 completed, metadata ready"},
	{"joined", "transcode = failed", "transcode ready, transcode/1 completed, transcode/2 completed, metadata ready"},
	{"joined", "transcode = completed", "transcode/1 completed, transcode/2 completed, metadata ready"},
	{"joined", "transcode = dead", "transcode stopped, transcode/1 completed, transcode/2 completed, metadata ready"},
	{"joined and cancelled", "transcode = pending", "transcode ready, transcode/1 completed, transcode/2 completed"},
	{"joined and completed", "transcode = pending", "transcode ready, metadata ready"},
	{"joined and completed", "ingest = pending, transcode = pending", "ingest ready"},
}

// statusColumns makes the assignments of a statement of short ones such as "ingest = completed".
func statusColumns(change string) string {
	var set []string
	for one := range strings.SplitSeq(change, ", ") {
		stage, status, _ := strings.Cut(one, " = ")
		set = append(set, stage+"_status = '"+status+"'")
	}
	return strings.Join(set, ", ")
}

func TestUpdate_ByHandOpensClosesAndStopsSteps(t *testing.T) {
	t.Parallel()
	for name, state := range stepStates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := b.worker()
			for _, c := range byHand {
				if c.state != name {
					continue
				}
				b.exec("delete from tasks")
				id := state.make(b, w)
				b.wantSteps("before", id, state.want)
				held := b.queryInt("select count(*) from steps where token is not null")
				b.exec("update tasks set "+statusColumns(c.change)+" where id = $1", id)
				b.wantSteps(c.change, id, c.want)
				b.checkSteps(c.change)
				left := b.queryInt("select count(*) from steps where token is not null")
				revoked := b.queryInt("select count(*) from attempts where outcome = 'cancelled'")
				if name != "joined and cancelled" && name != "divided and cancelled" && revoked != held-left {
					t.Errorf("%s: %d of %d claims are in the history as revoked, want %d", c.change, revoked, held, held-left)
				}
			}
		})
	}
}

// checkSteps checks, in other words than the function cuelight_video_reconcile, that all steps agree with the statuses.
func (b bundle) checkSteps(what string) {
	b.t.Helper()
	for _, step := range b.disagreements() {
		b.t.Errorf("%s: %s", what, step)
	}
}

func (b bundle) disagreements() []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `
		with stages as (
		  select t.id, x.stage, x.status, x.unblocked
		    from tasks t
		   cross join lateral cuelight_video_stages(t) x
		)
		select format('task %s: stage %s is %s and has the step %s with %s parts', g.id, g.stage, g.status, coalesce(s.status::text, 'none'),
		              (select count(*) from steps p where p.task_id = g.id and p.stage = g.stage and p.part > 0))
		  from stages g
		  left join steps s on s.task_id = g.id and s.stage = g.stage and s.part = 0
		 where coalesce(s.status::text, 'none') <> all (case
		         when not g.unblocked then '{none}'::text[]
		         when g.status in ('pending', 'failed') then '{ready,waiting}'
		         when g.status = 'inprogress' then '{running}'
		         when g.status = 'divided' then '{divided}'
		         when g.status = 'completed' then '{none}'
		         else '{none,stopped}' end)
		    or exists (select from steps p
		                where p.task_id = g.id and p.stage = g.stage and p.part > 0 and p.status::text <> all (case
		                        when not g.unblocked then '{}'::text[]
		                        when g.status = 'divided' then '{ready,waiting,running,completed}'
		                        when s.status = 'stopped' and g.status in ('dead', 'cancelled') then '{stopped,completed}'
		                        when s.parts is not null or g.status = 'completed' then '{completed}'
		                        else '{}' end))
		    or s.open_parts <> (select count(*) from steps p
		                         where p.task_id = g.id and p.stage = g.stage and p.part > 0 and p.status <> 'completed')
		 order by 1`)
	must(b.t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(b.t, err)
	return found
}

// A stage that somebody completes by hand is an attempt without a worker.
func TestUpdate_ByHandRecordsACompletedStage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	from, err := b.EventWatermark(t.Context())
	must(t, err)
	b.exec("update tasks set ingest_status = 'completed'")
	h := b.history(id)
	if len(h) != 1 || h[0].Stage != "ingest" || h[0].Outcome != "completed" || !h[0].Worker.IsZero() || h[0].WorkerName != "" {
		t.Errorf("the history is %+v", h)
	}
	events := b.events(from)
	wantEvents(t, events, "stage_completed ingest")
	if result, err := b.Result(t.Context(), id, "ingest"); err != nil || string(result) != "null" {
		t.Errorf("the result is %s, %v", result, err)
	}
	b.exec("update tasks set ingest_status = 'completed', priority = 1")
	if h := b.history(id); len(h) != 1 {
		t.Errorf("after an update that changes no status the history is %+v", h)
	}
	b.exec("update tasks set transcode_status = 'dead', metadata_status = 'completed'")
	wantEvents(t, b.events(events[0].ID), "stage_completed metadata", "dead transcode") // the end of the task is the last
}

func TestUpdate_OfPriorityUserAndPlacementReachesSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	id := b.divided(w, 2)
	claimed := b.claimParts(w, 1)
	b.exec(`update tasks set priority = 7, user_id = 'ann',
		placement = '{"transcode": {"requires": ["gpu"]}, "metadata": {"requires": ["net"]}}'`)
	const reached = `select count(*) from steps where rank = -7 and user_id = 'ann'`
	if n := b.queryInt(reached); n != 4 {
		t.Errorf("%d steps have the new priority and user, want 4", n)
	}
	for where, want := range map[string]int{
		`stage = 'metadata' and placement = '{"requires": ["net"]}'`:               1,
		`stage = 'transcode' and part > 0 and placement = '{"requires": ["gpu"]}'`: 2,
		`stage = 'transcode' and part = 0 and placement is null`:                   1, // the stage itself only divides and joins
	} {
		if n := b.queryInt("select count(*) from steps where " + where); n != want {
			t.Errorf("%d steps %s, want %d", n, where, want)
		}
	}
	if lost, err := b.heartbeat(w, claimed...); err != nil || len(lost) > 0 {
		t.Errorf("the claim of a part was lost: %v, %v", lost, err)
	}
	out := b.exchange(w, 1, nil, metadata)
	if len(out.Claims) != 0 {
		t.Errorf("a worker without the label claimed %+v", out.Claims)
	}
	b.exec("update tasks set placement = null, user_id = null, priority = -1")
	if n := b.queryInt("select count(*) from steps where rank = 1 and user_id = '' and placement is null"); n != 4 {
		t.Errorf("%d steps have the newest priority, user and placement, want 4", n)
	}
	second := b.submit()
	if c := b.claim(w, ingest); c.Task != second {
		t.Errorf("claimed %+v", c)
	}
	b.exec("update tasks set priority = 5 where id = $1", id)
	if c := b.claim(w, metadata); c.Task != id || c.Position.Rank != -5 {
		t.Errorf("claimed %+v", c)
	}
}

// Steps that were waiting, tried, or divided are restored as they were.
func TestUndelete_RestoresSteps(t *testing.T) {
	t.Parallel()
	for name, state := range stepStates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := b.worker()
			id := state.make(b, w)
			before := b.get(id)
			must(t, b.Delete(t.Context(), id, store.DeleteOptions{}))
			b.wantSteps("deleted", id, "")
			must(t, b.Undelete(t.Context(), id, ""))
			b.wantSteps("undeleted", id, strings.ReplaceAll(state.want, "running", "ready"))
			b.checkSteps("undeleted")
			after := b.get(id)
			for i, s := range before.Stages {
				if s.Status == inprogress {
					s.Status, s.Attempts = pending, s.Attempts-1
					s.Token, s.LockedAt, s.LockedBy = store.ID{}, nil, store.ID{}
				}
				if fmt.Sprintf("%+v", describe(s)) != fmt.Sprintf("%+v", describe(after.Stages[i])) {
					t.Errorf("stage %+v was restored as %+v", describe(s), describe(after.Stages[i]))
				}
			}
		})
	}
}

// describe replaces the pointers of a stage by their values.
func describe(s store.StageState) map[string]any {
	values := map[string]any{"stage": s.Name, "status": s.Status, "attempts": s.Attempts, "token": s.Token}
	if s.RunAt != nil {
		values["run_at"] = s.RunAt.UTC()
	}
	if s.Parts != nil {
		values["parts"], values["open_parts"] = *s.Parts, *s.OpenParts
	}
	return values
}

// reconcile runs Engine.Reconcile once over all tasks.
func (b bundle) reconcile() {
	b.t.Helper()
	must(b.t, b.Reconcile(b.t.Context(), store.ID{}, time.Minute))
}

// Disabled triggers cost time and lose nothing.
func TestReconcile_RepairsWhatDisabledTriggersLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setup           func(t *testing.T) bundle
		disable, enable string
	}{
		"disabled triggers": {
			func(t *testing.T) bundle { return setup(t) },
			"alter table tasks disable trigger user", "alter table tasks enable trigger user",
		},
		"session_replication_role": { // only a superuser may set it
			func(t *testing.T) bundle { return setupOwnServer(t) },
			"set session_replication_role = replica", "set session_replication_role = origin",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.setup(t)
			conn, err := b.pool.Acquire(t.Context())
			must(t, err)
			defer conn.Release()
			w := b.worker()
			for _, change := range byHand {
				b.exec("delete from tasks")
				id := stepStates[change.state].make(b, w)
				for _, sql := range []string{c.disable, "update tasks set " + statusColumns(change.change), c.enable} {
					_, err := conn.Exec(t.Context(), sql)
					must(t, err)
				}
				b.reconcile()
				what := change.state + ", " + change.change
				b.wantSteps(what, id, change.want)
				b.checkSteps(what)
			}
		})
	}
}

// Tasks in random states that were inserted while the triggers were disabled, as by a restored dump, go on.
func TestReconcile_OpensTheStepsOfImportedTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b.exec("alter table tasks disable trigger user")
	open := []string{"pending", "inprogress", "divided", "failed", "dead", "completed"}
	for range 300 {
		statuses := []string{"pending", "pending", "pending", "pending", "pending"}
		for i := range statuses {
			ready := !slices.ContainsFunc(b.Graph().Needs(i), func(j int) bool { return statuses[j] != "completed" })
			switch {
			case ready && random.IntN(3) > 0:
				statuses[i] = "completed"
			case ready:
				statuses[i] = open[random.IntN(len(open))]
			}
			if statuses[i] == "divided" && i != transcode {
				statuses[i] = "inprogress"
			}
		}
		b.exec(`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		        values ('a', $1, $2, $3, $4, $5)`, statuses[0], statuses[1], statuses[2], statuses[3], statuses[4])
	}
	b.exec("alter table tasks enable trigger user")
	b.reconcile()
	b.checkSteps("imported")
	w := b.worker()
	for range 10 {
		out := b.exchange(w, 1000, nil, ingest, transcode, metadata, assemble, publish)
		var reports []engine.Report
		for _, c := range out.Claims {
			reports = append(reports, completed(c))
		}
		b.exchange(w, 0, reports)
	}
	if n := b.queryInt("select count(*) from tasks where state in ('pending', 'inprogress')"); n > 0 {
		t.Errorf("%d tasks do not go on", n)
	}
}

// Triggers are planned for one row in a session, and then run for very many.
func TestTriggers_ChangeManyTasksFastAfterOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := b.pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	const tasks = 3000
	for _, c := range []struct{ name, sql string }{
		{"submit", "insert into tasks (source, user_id) select 'a', 'u' || n % 1000 from generate_series(1, $1) as n"},
		{"priority", "update tasks set priority = 1 where id in (select id from tasks where priority = 0 limit $1)"},
		{"complete", "update tasks set ingest_status = 'completed' where id in (select id from tasks where ingest_status = 'pending' limit $1)"},
		{"complete two", `update tasks set transcode_status = 'completed', metadata_status = 'completed'
			where id in (select id from tasks where transcode_status = 'pending' limit $1)`},
		{"dead", "update tasks set assemble_status = 'dead' where id in (select id from tasks where assemble_status = 'pending' limit $1)"},
		{"retry", "select cuelight_video_retry_tasks(array(select id from tasks where assemble_status = 'dead' limit $1))"},
		{"retry from ingest", `select cuelight_video_retry_tasks(
			array(select id from tasks where ingest_status = 'completed' limit $1), 'ingest')`},
		{"cancel", `update tasks set ingest_status = 'cancelled', transcode_status = 'cancelled', metadata_status = 'cancelled',
			assemble_status = 'cancelled', publish_status = 'cancelled'
			where id in (select id from tasks where ingest_status = 'pending' limit $1)`},
		{"delete", "delete from tasks where id in (select id from tasks limit $1)"},
	} {
		var few, many time.Duration
		for _, n := range []int{1, 1, 1, 1, 1, 1, tasks / 20, tasks - tasks/20 - 6} {
			began := time.Now()
			_, err := conn.Exec(t.Context(), c.sql, n)
			must(t, err)
			few, many = many, time.Since(began)
		}
		t.Logf("%s: %v for %d, %v for %d", c.name, few, tasks/20, many, tasks)
		if many > 19*8*max(few, 50*time.Millisecond) { // a plan for one row takes 19 times 19 times as long
			t.Errorf("%s: %v for %d tasks, and %v for %d", c.name, many, tasks, few, tasks/20)
		}
	}
	if n := b.queryInt("select count(*) from steps"); n > 0 {
		t.Errorf("%d steps are left", n)
	}
}
