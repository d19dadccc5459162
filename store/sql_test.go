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
		"create table tasks (id int)", "create table attempts (id int)", "create table workers (id int)",
		"create view history as select 1 as one",
	} {
		pool := pgtest.New(t, pgtest.SQL(foreign))
		for name, sql := range map[string]string{"schema.sql": cuelight.Schema, "triggers.sql": cuelight.Triggers} {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			if err == nil || !strings.Contains(err.Error(), "not Cuelight's") {
				t.Errorf("%s in a database with %q: error is %v", name, foreign, err)
			}
			_, _ = conn.Exec(t.Context(), "rollback")
			conn.Release()
		}
		var relations int
		err := pool.QueryRow(t.Context(),
			`select count(*) from pg_class where relnamespace = 'public'::regnamespace`).Scan(&relations)
		if err != nil || relations != 1 {
			t.Errorf("the database with %q now has %d relations, %v", foreign, relations, err)
		}
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

func TestConstraints_RejectImpossibleStates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	for change, constraint := range map[string]string{
		"transcode_status = 'completed'":                     "tasks_transcode_needs",
		"transcode_status = 'dead'":                          "tasks_transcode_needs",
		"publish_status = 'completed'":                       "tasks_publish_needs",
		"ingest_status = 'inprogress'":                       "tasks_ingest_claim",
		"ingest_token = gen_random_uuid()":                   "tasks_ingest_claim",
		"ingest_status = 'completed', ingest_run_at = now()": "tasks_ingest_waits",
		"source = ''":                            "tasks_source_not_empty",
		"params = '[]'":                          "tasks_params_object",
		"overridden_by = id":                     "tasks_overridden_ended",
		"ingest_run_at = 'infinity'":             "tasks_times_in_range",
		"ingest_run_at = '0044-03-15 BC'":        "tasks_times_in_range",
		"publish_run_at = '9999-12-31 15:00+00'": "tasks_times_in_range",
		"created_at = '-infinity'":               "tasks_times_in_range",
		"created_at = '10000-01-01'":             "tasks_times_in_range",
		"ingest_status = 'completed', transcode_status = 'completed', assemble_status = 'completed'": "tasks_assemble_needs",
		`ingest_status = 'inprogress', ingest_token = gen_random_uuid(), ingest_locked_at = now()`:   "tasks_ingest_claim",
	} {
		_, err := b.pool.Exec(t.Context(), "update tasks set "+change)
		pg := &pgconn.PgError{}
		if !errors.As(err, &pg) || pg.ConstraintName != constraint || pg.Detail != "The task is "+id.String()+"." {
			t.Errorf("%s: error is %v with detail %q, want constraint %s", change, err, pg.Detail, constraint)
		}
	}
}

func TestConstraints_RejectATaskThatOverridesItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	b.completeAll(w, b.claim(w, ingest))
	_, err := b.pool.Exec(t.Context(), "update tasks set overridden_by = id")
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.ConstraintName != "tasks_overridden_ended" {
		t.Errorf("error is %v", err)
	}
}

// A function has too few parameters for the columns of so many stages.
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
	for _, n := range []int{2, 17, stages} { // adds functions, too
		g, err := store.NewGraph("long", chain[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		st := store.New(pool, g)
		if _, err := st.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Submit(t.Context(), store.Submission{Source: "a"}); err != nil {
			t.Fatal(err)
		}
		for change, constraint := range map[string]string{
			"LAST_status = 'completed'":                                "long_tasks_LAST_needs",
			"LAST_token = gen_random_uuid()":                           "long_tasks_LAST_claim",
			"LAST_run_at = 'infinity'":                                 "long_tasks_times_in_range",
			"LAST_attempts = -1":                                       "long_tasks_attempts_counted",
			"overridden_by = gen_random_uuid(), s0_status='cancelled'": "long_tasks_overridden_ended",
			"source = ''":                                              "long_tasks_source_not_empty",
		} {
			last := fmt.Sprintf("s%d", n-1)
			change, constraint = strings.ReplaceAll(change, "LAST", last), strings.ReplaceAll(constraint, "LAST", last)
			_, err := pool.Exec(t.Context(), "update long_tasks set "+change)
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.ConstraintName != constraint {
				t.Errorf("%d stages: %s: error is %v, want constraint %s", n, change, err, constraint)
			}
		}
	}
	var functions int
	err := pool.QueryRow(t.Context(), `select count(*) from pg_proc where proname like 'cuelight_long_is_valid%'`).Scan(&functions)
	if err != nil || functions != 3 {
		t.Errorf("there are %d functions, %v", functions, err)
	}
}

func TestUpdate_NotifiesStagesThatBecomeReady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	all := []string{"cuelight_video"}
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
		{"transcode_status = 'dead'", nil},
		{"transcode_status = 'pending'", []string{"cuelight_video_transcode"}},
		{"transcode_status = 'completed'", nil},
		{"metadata_status = 'completed'", []string{"cuelight_video_assemble"}},
		{"assemble_run_at = now() + interval '1 hour'", []string{"cuelight_video_assemble"}},
		{"assemble_run_at = null", []string{"cuelight_video_assemble"}},
		{"priority = 3", []string{"cuelight_video_assemble"}},
		{"priority = 3", nil},
		{"priority = 2", nil},
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
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	notified := b.listen("cuelight_video")
	b.exec("update tasks set ingest_status = 'pending', ingest_token = null, ingest_locked_at = null, ingest_locked_by = null")
	if got := notified(); len(got) != 1 {
		t.Errorf("workers were not notified to check their claims: %v", got)
	}
	if h := b.history(id); len(h) != 1 || h[0].Outcome != "cancelled" || h[0].Token != c.Token {
		t.Errorf("history is %+v, want the claim as cancelled", h)
	}
	lost, err := b.heartbeat(w, c)
	if err != nil || !slices.Equal(lost, []store.ID{c.Token}) {
		t.Errorf("the heartbeat reports the lost claims %v, %v; want the claim", lost, err)
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
