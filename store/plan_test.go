package store

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/plantest"
)

func TestReads_UseIndexesAmongManyFinishedTasks(t *testing.T) {
	t.Parallel()
	conn := plantest.LargeDatabase(t)
	s := New(nil, Video())
	type read struct {
		sql     string
		args    int
		indexes string
	}
	reads := map[string]read{
		"stopped workers":  {s.sql.stoppedWorkers, 3, "workers_pkey"},
		"find workers":     {s.sql.findWorkers, 2, "workers_pkey"},
		"workers of a key": {s.sql.workersOf, 2, "workers_alive"},
		"count refused":    {s.sql.countRefused, 3, "attempts_refused workers_pkey"},
		"get":              {s.sql.get, 1, "tasks_pkey"},
	}
	ready := "tasks_ingest_ready tasks_transcode_ready tasks_metadata_ready tasks_assemble_ready tasks_publish_ready"
	indexes := map[pageIndex]string{
		indexAll: "tasks_pkey", indexRequest: "tasks_request", indexUser: "tasks_user",
		indexOfState(StateRunning): "tasks_held", indexOfState(StateDead): "tasks_dead", indexOfState(StateReady): ready,
		indexOfStatus(StatusPending):    "tasks_by_status tasks_ingest_ready",
		indexOfStatus(StatusInProgress): "tasks_by_status tasks_held tasks_publish_ready",
		indexOfStage(StatusInProgress):  "tasks_held", indexOfStage(StatusDivided): "tasks_held", indexOfStage(StatusDead): "tasks_dead",
		indexOfStatus(StatusDead): "tasks_dead",
	}
	for key, sql := range s.sql.pages {
		index := indexes[key.index]
		if index == "" {
			index = "tasks_by_status"
		}
		reads[fmt.Sprintf("page %s, oldest %t", key.index, key.oldest)] = read{sql, 11, index}
	}
	cancelled, overridden, completed, dead := s.graph.templateData().prunable()
	for where, index := range map[string]string{
		cancelled: "tasks_by_status", completed: "tasks_by_status", overridden: "tasks_overridden", dead: "tasks_dead",
	} {
		reads["prune where "+where] = read{s.graph.SQL(pruneTasksSQL, where), 4, index + " tasks_overridden attempts_pkey"}
	}
	for name, c := range reads {
		plan := plantest.WantIndexes(t, conn, name, c.sql, plantest.Nulls(c.args), strings.Fields(c.indexes)...)
		// A page must not sort what it reads in the order of an index.
		sorted := regexp.MustCompile(`Sort\n.*Sort Key: .*\n +-> +(Index|Bitmap)[^\n]* on tasks`)
		if strings.HasPrefix(name, "page") && !strings.Contains(name, "request") && sorted.MatchString(plan) {
			t.Errorf("%s sorts rows from an index:\n%s", name, plan)
		}
	}
}

// batchesOnly fails the test for queries outside a batch, which would run with the
// settings of the session.
type batchesOnly struct {
	DB
	t *testing.T
}

func (b batchesOnly) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	b.t.Errorf("queried with the settings of the session: %s", sql)
	return b.DB.Query(ctx, sql, args...)
}

// A caller's pool may use JIT, which is PostgreSQL's default: it compiles statements with a
// high estimated cost, which takes longer than running them.
func TestReads_IgnoreSessionSettings(t *testing.T) {
	t.Parallel()
	g := Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	settings := `select concat_ws(' ', current_setting('jit'), current_setting('enable_seqscan'), current_setting('plan_cache_mode'))`
	if _, err := tx.Exec(t.Context(), `set jit = on; set jit_above_cost = 0`,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	s := New(batchesOnly{tx, t}, g)
	var during, after string
	err = s.read(t.Context(), settings, nil, func(rows pgx.Rows) error {
		during, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		return err
	})
	if err != nil || during != "off off force_generic_plan" {
		t.Errorf("during a read the settings are %s, %v", during, err)
	}
	if err := tx.QueryRow(t.Context(), settings).Scan(&after); err != nil || after != "on on auto" {
		t.Errorf("after a read the transaction's settings are %s, %v", after, err)
	}
	for name, query := range map[string]func() error{
		"page":      func() error { _, err := s.Page(t.Context(), ListQuery{}); return err },
		"list":      func() error { _, err := s.List(t.Context(), ListQuery{}); return err },
		"retry all": func() error { _, err := s.RetryAll(t.Context(), Filter{}, "", RetryAllOptions{}); return err },
	} {
		if err := query(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
