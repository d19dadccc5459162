package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// catalogSQL describes all that Migrate creates for a pipeline, without the order of columns.
const catalogSQL = `
select 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' ||
       coalesce(column_default, '')
  from information_schema.columns where table_schema = 'public'
union all
select 'constraint ' || conrelid::regclass || '.' || conname || ' ' || convalidated || ' ' || pg_get_constraintdef(oid)
  from pg_constraint where connamespace = 'public'::regnamespace and conrelid <> 0
union all
select indexdef from pg_indexes where schemaname = 'public'
union all
select pg_get_triggerdef(oid) || ' ' || tgenabled::text from pg_trigger where not tgisinternal
union all
select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
union all
select 'shape ' || name || ' ' || version || ' ' || stages from {pipeline}
order by 1`

func catalog(t *testing.T, pool *pgxpool.Pool, g store.Graph) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), g.SQL(catalogSQL))
	must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return strings.Join(lines, "\n")
}

// wantCatalogOf compares the tables with those that Migrate creates in an empty database.
func wantCatalogOf(t *testing.T, pool *pgxpool.Pool, g store.Graph) {
	t.Helper()
	fresh := pgtest.New(t, pgtest.Schema{})
	_, err := store.New(fresh, g).Migrate(t.Context())
	must(t, err)
	got, want := strings.Split(catalog(t, pool, g), "\n"), strings.Split(catalog(t, fresh, g), "\n")
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("%s: after adding stages there is: %s", g.Name(), line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%s: after adding stages there is no: %s", g.Name(), line)
		}
	}
}

// withoutStages returns the nodes without some of them. A stage that needed one of these
// needs what that one needs.
func withoutStages(nodes []store.Node, removed ...string) []store.Node {
	needs := make(map[string][]string)
	for _, n := range nodes {
		needs[n.Name] = n.Needs
	}
	var kept []store.Node
	for _, n := range nodes {
		if slices.Contains(removed, n.Name) {
			continue
		}
		var all []string
		for todo := slices.Clone(n.Needs); len(todo) > 0; todo = todo[1:] {
			if slices.Contains(removed, todo[0]) {
				todo = append(todo, needs[todo[0]]...)
			} else if !slices.Contains(all, todo[0]) {
				all = append(all, todo[0])
			}
		}
		kept = append(kept, store.Node{Name: n.Name, Needs: all})
	}
	return kept
}

func mustGraph(t *testing.T, name string, nodes ...store.Node) store.Graph {
	t.Helper()
	g, err := store.NewGraph(name, nodes...)
	must(t, err)
	return g
}

// The podcast pipeline before and after stages were added at its begin, middle and end.
var (
	podcastBefore = []store.Node{{Name: "fetch"}, {Name: "encode", Needs: []string{"fetch"}},
		{Name: "announce", Needs: []string{"encode"}}}
	podcastAfter = []store.Node{{Name: "quota"}, {Name: "fetch", Needs: []string{"quota"}},
		{Name: "encode", Needs: []string{"fetch"}}, {Name: "transcribe", Needs: []string{"fetch"}},
		{Name: "announce", Needs: []string{"encode", "transcribe"}}, {Name: "archive", Needs: []string{"announce"}}}
)

// newPodcast creates the tables of the pipeline before.
func newPodcast(t *testing.T) bundle {
	t.Helper()
	g := mustGraph(t, "podcast", podcastBefore...)
	return newBundle(t, pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL())), g)
}

func TestMigrate_CountsAddedStagesByWhatATaskHasStarted(t *testing.T) {
	t.Parallel()
	const (
		scheduled  = "fetch_status = 'pending'"
		cancelled  = "fetch_status = 'cancelled', encode_status = 'cancelled', announce_status = 'cancelled'"
		fetched    = "fetch_status = 'completed'"
		encoded    = "fetch_status = 'completed', encode_status = 'completed'"
		finished   = "fetch_status = 'completed', encode_status = 'completed', announce_status = 'completed'"
		dead       = "fetch_status = 'completed', encode_status = 'dead'"
		deadAtEnd  = "fetch_status = 'completed', encode_status = 'completed', announce_status = 'dead'"
		overridden = "fetch_status = 'cancelled', encode_status = 'cancelled', announce_status = 'cancelled', " +
			"overridden_by = (select id from podcast_tasks where source = 'new')"
	)
	b := newPodcast(t)
	changes := map[string]string{
		"new": "priority = 0", "scheduled": scheduled, "cancelled": cancelled, "fetched": fetched, "encoded": encoded,
		"finished": finished, "dead": dead, "dead at the end": deadAtEnd, "overridden": overridden,
	}
	for source := range changes {
		s := store.Submission{Source: source}
		if source == "scheduled" {
			s.NotBefore = time.Now().Add(24 * time.Hour)
		}
		b.submitTask(s)
	}
	for source, change := range changes {
		b.exec("update podcast_tasks set "+change+" where source = $1", source)
	}
	after := newBundle(t, b.pool, mustGraph(t, "podcast", podcastAfter...))
	eventsBefore, err := b.LastAllocatedEvent(t.Context())
	must(t, err)
	r, err := after.Migrate(t.Context())
	must(t, err)
	if want := []string{"quota", "transcribe", "archive"}; !slices.Equal(r.Added, want) {
		t.Errorf("Migrate added %v, want %v", r.Added, want)
	}
	if events, err := b.LastAllocatedEvent(t.Context()); err != nil || events != eventsBefore {
		t.Errorf("Migrate recorded events, or: %v", err)
	}
	want := map[string]string{ // quota, transcribe, archive
		"new":             "pending pending pending",
		"scheduled":       "pending pending pending",
		"cancelled":       "cancelled cancelled cancelled",
		"fetched":         "completed pending pending",
		"encoded":         "completed pending pending",
		"finished":        "completed completed completed",
		"dead":            "completed pending pending",
		"dead at the end": "completed completed pending",
		"overridden":      "cancelled cancelled cancelled",
	}
	for source, statuses := range want {
		var got string
		err := b.pool.QueryRow(t.Context(), `select concat_ws(' ', quota_status, transcribe_status, archive_status)
			from podcast_tasks where source = $1`, source).Scan(&got)
		if err != nil || got != statuses {
			t.Errorf("task %q: quota, transcribe and archive are %s, %v; want %s", source, got, err, statuses)
		}
	}
	tasks, err := after.List(t.Context(), store.ListQuery{Filter: store.Filter{Status: store.StatusScheduled}})
	if err != nil || len(tasks) != 1 || tasks[0].Source != "scheduled" {
		t.Errorf("scheduled are %+v, %v", tasks, err)
	}
	out, err := after.RetryAll(t.Context(), store.Filter{Status: done}, "transcribe", store.RetryAllOptions{})
	if err != nil || out.Retried != 1 {
		t.Errorf("retrying completed tasks from an added stage returned %+v, %v", out, err)
	}
	again, err := after.Migrate(t.Context())
	if err != nil || len(again.Added) > 0 {
		t.Errorf("a second Migrate returned %+v, %v", again, err)
	}
}

func TestMigrate_RefusesAChangeOfStagesThatLosesOrBlocksTasks(t *testing.T) {
	t.Parallel()
	fetch, encode := store.Node{Name: "fetch"}, store.Node{Name: "encode", Needs: []string{"fetch"}}
	announce := func(needs ...string) store.Node { return store.Node{Name: "announce", Needs: needs} }
	for _, c := range []struct {
		name          string
		before, after []store.Node
		reason        string
	}{
		{
			"a removed stage", []store.Node{fetch, encode, announce("encode")}, []store.Node{fetch, encode},
			`the tables have stage "announce"`,
		}, {
			"a renamed stage", []store.Node{fetch, encode},
			[]store.Node{fetch, {Name: "convert", Needs: []string{"fetch"}}}, `the tables have stage "encode"`,
		}, {
			"a need of an existing stage that a task has not completed",
			[]store.Node{fetch, encode, announce("fetch")}, []store.Node{fetch, encode, announce("encode")},
			`stage "announce" has started in some tasks that have not completed what it needs now (encode)`,
		}, {
			"an added stage whose needs a task has not completed, before a stage that has started",
			[]store.Node{fetch, encode, announce("fetch")},
			[]store.Node{fetch, encode, announce("check"), {Name: "check", Needs: []string{"encode"}}},
			`stage "check" has started in some tasks that have not completed what it needs now (encode)`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := mustGraph(t, "podcast", c.before...)
			b := newBundle(t, pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL())), g)
			b.submit()
			if _, ok := g.Stage("announce"); ok && slices.Equal(c.before[2].Needs, []string{"fetch"}) {
				b.exec("update podcast_tasks set fetch_status = 'completed', announce_status = 'completed'")
			}
			before := catalog(t, b.pool, g)
			_, err := store.New(b.pool, mustGraph(t, "podcast", c.after...)).Migrate(t.Context())
			if !errors.Is(err, store.ErrSchemaShape) || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("error is %v, want one with %q", err, c.reason)
			}
			if catalog(t, b.pool, g) != before {
				t.Error("the tables were changed")
			}
		})
	}
}

func TestMigrate_AddsNoStageWhileAWorkerWithThePreviousStagesRuns(t *testing.T) {
	t.Parallel()
	b := newPodcast(t)
	w := b.worker()
	after := newBundle(t, b.pool, mustGraph(t, "podcast", podcastAfter...))
	_, err := after.Migrate(t.Context())
	if !errors.Is(err, store.ErrSchemaShape) || !strings.Contains(err.Error(), "runs on host test (process 1,") {
		t.Errorf("while a worker runs, Migrate returned %v", err)
	}
	must(t, b.DeregisterWorker(t.Context(), w))
	_, err = after.Migrate(t.Context())
	must(t, err)
	_, err = b.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 2})
	if !errors.Is(err, store.ErrSchemaShape) {
		t.Errorf("a worker with the previous stages registered: %v", err)
	}
	after.worker()
}
