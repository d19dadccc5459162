package store_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// These tests use the tables with SQL alone, as psql does.

func TestSQLFiles_AreWhatTheGeneratorWrites(t *testing.T) {
	g := store.Video()
	if g.SchemaSQL() != cuelight.Schema {
		t.Error("schema.sql is not what the generator writes: run make sql")
	}
	if g.TriggersSQL() != cuelight.Triggers {
		t.Error("triggers.sql is not what the generator writes: run make sql")
	}
	if _, err := os.Stat("../schema.sql"); err != nil {
		t.Error(err)
	}
}

func TestSQLFiles_CanBeAppliedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	for range 2 {
		b.exec(cuelight.Schema)
		b.exec(cuelight.Triggers)
	}
	b.wantStatuses(id, pending, pending, pending, pending, pending)
}

// psql continues after an error, so each file must change everything or nothing.
func TestSQLFiles_RejectTablesThatAreNotCuelights(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{
		"create table tasks (id int)", "create table steps (id int)", "create table attempts (id int)", "create table workers (id int)",
	} {
		pool := pgtest.New(t, pgtest.SQL(foreign))
		for name, sql := range map[string]string{"schema.sql": cuelight.Schema, "triggers.sql": cuelight.Triggers} {
			conn, err := pool.Acquire(t.Context())
			must(t, err)
			if _, err = conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err == nil {
				t.Errorf("%s was loaded in a database with %q", name, foreign)
			}
			_, _ = conn.Exec(t.Context(), "rollback")
			conn.Release()
		}
		wantOnlyRelation(t, pool, foreign)
	}
}

// wantOnlyRelation checks that nothing was created next to the table of another program.
func wantOnlyRelation(t *testing.T, pool *pgxpool.Pool, foreign string) {
	t.Helper()
	var relations int
	err := pool.QueryRow(t.Context(),
		`select count(*) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'`).Scan(&relations)
	if err != nil || relations != 1 {
		t.Errorf("the database with %q now has %d relations, %v", foreign, relations, err)
	}
}

func TestMigrate_RefusesTablesOfAnotherProgram(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"tasks", "steps", "attempts", "outbox", "positions", "workers", "pauses", "deleted_tasks", "pipeline",
	} {
		foreign := "create table " + name + " (id int)"
		pool := pgtest.New(t, pgtest.SQL(foreign))
		st := store.New(pool, store.Video())
		_, err := st.Migrate(t.Context())
		for _, err := range []error{err, st.Check(t.Context())} {
			if !errors.Is(err, store.ErrForeignTables) || !strings.Contains(err.Error(), ": "+name) ||
				!strings.Contains(err.Error(), "create schema") {
				t.Errorf("with a table %s the error is %v", name, err)
			}
		}
		wantOnlyRelation(t, pool, foreign)
	}
}

func TestCheck_RequiresTriggers(t *testing.T) {
	t.Parallel()
	s := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema)), store.Video())
	if err := s.Check(t.Context()); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("Check returned %v", err)
	}
	if r, err := s.Migrate(t.Context()); err != nil || r.From != 0 {
		t.Errorf("Migrate returned %+v, %v", r, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMigrate_WorksInAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL("create schema other", "create table tasks (unrelated int)"))
	c := pool.Config()
	c.ConnConfig.RuntimeParams["search_path"] = "other,public"
	inSchema, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inSchema.Close)
	b := newBundle(t, inSchema, store.Video())
	if _, err := b.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, w := b.submit(), b.worker()
	// Other sessions have another search_path.
	for _, sql := range []string{
		"select other.cuelight_video_status(t) from other.tasks t",
		"select other.cuelight_video_cancel(id) from other.tasks",
		"select other.cuelight_video_retry(id) from other.tasks",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	b.completeAll(w, b.claim(w, ingest))
	b.wantStatuses(id, done, done, done, done, done)
	if _, err := pool.Exec(t.Context(), "delete from other.tasks"); err != nil {
		t.Error(err)
	}
}

func TestInsert_FromPsqlIsASubmission(t *testing.T) {
	t.Parallel()
	b := setup(t)
	notified := b.listen("cuelight_video_ingest", "cuelight_video_transcode")
	b.exec("insert into tasks (source) values ('a.mp4')")
	if got := notified(); !slices.Equal(got, []string{"cuelight_video_ingest"}) {
		t.Errorf("notified on %v, want ingest's channel", got)
	}
	b.completeAll(b.worker(), b.claim(b.worker(), ingest))
}

// wantConstraint runs SQL that a constraint must refuse.
func (b bundle) wantConstraint(constraint, sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "23514" || pg.ConstraintName != constraint {
		b.t.Errorf("%s: error is %v, want constraint %s", sql, err, constraint)
	}
}

func TestConstraints_RejectImpossibleStates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	for change, constraint := range map[string]string{
		"transcode_status = 'completed'":       "tasks_transcode_needs",
		"transcode_status = 'dead'":            "tasks_transcode_needs",
		"publish_status = 'completed'":         "tasks_publish_needs",
		"ingest_status = 'inprogress'":         "tasks_claimed",
		"ingest_status = 'divided'":            "tasks_claimed",
		"source = ''":                          "source_not_empty",
		"params = '[]'":                        "is_object",
		"user_context = '[]'":                  "user_context_of_10_kib",
		"overridden_by = id":                   "tasks_overridden",
		"scheduled_at = 'infinity'":            "time_in_range",
		"scheduled_at = '0044-03-15 BC'":       "time_in_range",
		"scheduled_at = '9999-12-31 15:00+00'": "time_in_range",
		"created_at = '-infinity'":             "time_in_range",
		"created_at = '10000-01-01'":           "time_in_range",
		"ingest_status = 'completed', transcode_status = 'completed', assemble_status = 'completed'": "tasks_assemble_needs",
		"ingest_status = 'completed', transcode_status = 'inprogress'":                               "tasks_claimed",
		"ingest_status = 'completed', transcode_status = 'divided'":                                  "tasks_claimed",
	} {
		b.wantConstraint(constraint, "update tasks set "+change)
	}
	b.wantConstraint("tasks_claimed", "insert into tasks (source, ingest_status) values ('a', 'inprogress')")
	b.wantConstraint("tasks_claimed", "insert into tasks (source, ingest_status, transcode_status) values ('a', 'completed', 'divided')")
	for change, constraint := range map[string]string{
		"status = 'running'":            "steps_claim",
		"token = gen_random_uuid()":     "steps_claim",
		"locked_by = gen_random_uuid()": "steps_claim",
		"status = 'waiting'":            "steps_waits",
		"run_at = now()":                "steps_waits",
	} {
		b.wantConstraint(constraint, "update steps set "+change)
	}
}

func TestConstraints_RejectATaskThatOverridesItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	b.completeAll(w, b.claim(w, ingest))
	b.wantConstraint("tasks_overridden", "update tasks set overridden_by = id")
}

// A claim that a worker has made, and the division of a stage, cannot be made again by hand after they have ended.
func TestConstraints_RejectADivisionByHand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.divided(b.worker(), 2)
	must(t, b.Cancel(t.Context(), id))
	b.wantConstraint("tasks_claimed", "update tasks set transcode_status = 'divided'")
	must(t, b.Retry(t.Context(), id, ""))
	b.wantStatuses(id, done, divided, pending, pending, pending)
	b.exec("update tasks set priority = 1, transcode_status = 'divided'") // as it is
}

func TestConstraints_HoldForManyStages(t *testing.T) {
	t.Parallel()
	const stages = 31
	chain := make([]store.Node, stages)
	for i := range chain {
		chain[i] = store.Node{Name: fmt.Sprintf("s%d", i)}
		for _, need := range chain[:i] {
			chain[i].Needs = append(chain[i].Needs, need.Name)
		}
	}
	pool := pgtest.New(t, pgtest.Schema{})
	for _, n := range []int{2, 17, stages} { // adds stages, too
		b := newBundle(t, pool, mustGraph(t, "long", chain[:n]...))
		if _, err := b.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.submit()
		for change, constraint := range map[string]string{
			"LAST_status = 'completed'":                   "long_tasks_LAST_needs",
			"s0_status = 'inprogress'":                    "long_tasks_claimed",
			"scheduled_at = 'infinity'":                   "time_in_range",
			"overridden_by = id, s0_status = 'cancelled'": "long_tasks_overridden",
			"source = ''":                                 "source_not_empty",
		} {
			last := fmt.Sprintf("s%d", n-1)
			change, constraint = strings.ReplaceAll(change, "LAST", last), strings.ReplaceAll(constraint, "LAST", last)
			b.wantConstraint(constraint, "update long_tasks set "+change)
		}
	}
}

func TestUpdate_NotifiesStagesThatBecomeReady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	var all []string
	for _, s := range store.Video().Stages() {
		all = append(all, "cuelight_video_"+s)
	}
	notified := b.listen(all...)
	for _, step := range []struct {
		change string
		want   []string
	}{
		{"ingest_status = 'completed'", []string{"cuelight_video_metadata", "cuelight_video_transcode"}},
		{"ingest_status = 'completed'", nil},
		{"transcode_status = 'dead'", []string{"cuelight_video_metadata"}}, // still ready
		{"transcode_status = 'pending'", []string{"cuelight_video_metadata", "cuelight_video_transcode"}},
		{"transcode_status = 'completed'", []string{"cuelight_video_metadata"}},
		{"metadata_status = 'completed'", []string{"cuelight_video_assemble"}},
		{"priority = 3", []string{"cuelight_video_assemble"}},
		{"priority = 3", nil},
		{"user_id = 'ann'", []string{"cuelight_video_assemble"}},
		{"params = '{}'", nil},
	} {
		b.exec("update tasks set "+step.change+" where id = $1", id)
		if got := notified(); !sameSet(got, step.want) {
			t.Errorf("%s notifies %v, want %v", step.change, got, step.want)
		}
	}
}

func TestUpdate_DoesNotNotifyAStageItClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	w := b.worker()
	notified := b.listen("cuelight_video", "cuelight_video_transcode", "cuelight_video_metadata",
		"cuelight_video_assemble", "cuelight_video_publish")
	b.completeAll(w, b.claim(w, ingest))
	if got := notified(); len(got) != 0 {
		t.Errorf("notified on %v", got)
	}
}

func TestRetryFunction_ResetsTheStageAndAllAfterIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	b.completeAll(w, b.claim(w, ingest))
	notified := b.listen("cuelight_video_transcode", "cuelight_video_metadata")
	b.exec("select cuelight_video_retry($1, 'transcode')", id)
	b.wantStatuses(id, done, pending, done, pending, pending)
	if got := notified(); !slices.Equal(got, []string{"cuelight_video_transcode"}) {
		t.Errorf("notified on %v, want transcode", got)
	}
	b.completeAll(w, b.claim(w, transcode))
	b.wantStatuses(id, done, done, done, done, done)

	_, err := b.pool.Exec(t.Context(), "select cuelight_video_retry($1, 'nonsense')", id)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !strings.Contains(pg.Hint, "ingest, transcode") {
		t.Errorf("error for an unknown stage is %v, want a hint with the stages", err)
	}
}

func TestUpdate_ByHandRecordsARevokedClaim(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"pending", "failed", "dead", "cancelled", "completed"} {
		b := setup(t)
		id, w := b.submit(), b.worker()
		c := b.claim(w, ingest)
		notified := b.listen("cuelight_video")
		b.exec("update tasks set ingest_status = $1", status)
		if got := notified(); len(got) != 1 {
			t.Errorf("%s: workers were not notified to check their claims: %v", status, got)
		}
		h := b.history(id)
		byHand := slices.IndexFunc(h, func(a store.Attempt) bool { return a.Outcome == "completed" })
		if (byHand >= 0) != (status == "completed") {
			t.Errorf("%s: history is %+v", status, h)
		} else if byHand >= 0 {
			h = slices.Delete(h, byHand, byHand+1)
		}
		if len(h) != 1 || h[0].Outcome != "cancelled" || h[0].Token != c.Token || h[0].Worker != w || h[0].Attempt != 1 {
			t.Errorf("%s: history is %+v, want the claim as cancelled", status, h)
		}
		lost, err := b.heartbeat(w, c)
		if err != nil || !slices.Equal(lost, []store.ID{c.Token}) {
			t.Errorf("%s: the heartbeat reports the lost claims %v, %v; want the claim", status, lost, err)
		}
		if out := b.exchange(w, 0, []engine.Report{completed(c)}); len(out.Stale) != 1 || !out.Stale[0].Cancelled {
			t.Errorf("%s: the worker's report was not stale: %+v", status, out)
		}
	}
}

func TestDelete_OfATaskDeletesItsHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	b.completeAll(w, b.claim(w, ingest))
	b.exec("delete from tasks where id = $1", id)
	if h := b.history(id); len(h) != 0 {
		t.Errorf("%d attempts are left", len(h))
	}
}

func TestIDs_SortByCreationTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var sorted bool
	var version string
	err := b.pool.QueryRow(t.Context(), `
		with made as materialized (select n, cuelight_id() as id from generate_series(1, 2000) as n),
		     spaced as (select n, id from made where n % 20 = 0)
		select bool_and(ordered), min(version) from (
		  select id > lag(id, 1, '00000000-0000-0000-0000-000000000000'::uuid) over (order by n) as ordered,
		         substr(id::text, 15, 1) as version from spaced) as checks`).Scan(&sorted, &version)
	if err != nil || !sorted || version != "7" {
		t.Errorf("sorted %t, version %s, %v", sorted, version, err)
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
