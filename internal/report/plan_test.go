package report

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/plantest"
	"github.com/cuelight/cuelight/store"
)

func TestReads_UseIndexesAmongManyFinishedTasks(t *testing.T) {
	t.Parallel()
	conn := plantest.LargeDatabase(t)
	type read struct {
		sql     string
		args    string
		indexes string
	}
	dead := "'', '', '', '', '', null, null, 1000"
	reads := map[string]read{
		"stats": {statsSQL, "'{ingest,transcode,metadata,assemble,publish}', 10000",
			"steps_ready steps_running steps_waiting tasks_state"},
		"dead groups":       {deadGroupsSQL, dead + ", 100", "tasks_state attempts_pkey"},
		"dead stages":       {deadListSQL, dead + ", 100", "tasks_state attempts_pkey"},
		"count dead stages": {deadCountSQL, dead, "tasks_state"},
		"find dead stages":  {deadMatchingSQL, dead, "tasks_state"},
		"overridden tasks":  {overriddenBySQL, "null", "tasks_overridden"},
		"latency":           {latencySQL, "now(), 3600, 60, 8, 25, '{}', '{}', '{}'", "tasks_pkey attempts_pkey"},
		"requirements":      {placedSQL, "10000", "steps_placed"},
		"progress of parts": {partsSQL, "'{}', '{}'", "steps_pkey attempts_pkey"},
	}
	for name, c := range reads {
		plantest.WantIndexes(t, conn, name, store.Video().SQL(c.sql), c.args, strings.Fields(c.indexes)...)
	}
}

// batchesOnly fails the test for queries outside a batch, which would run with the
// settings of the session.
type batchesOnly struct {
	store.DB
	t *testing.T
}

// Query fails the test and runs the query.
func (b batchesOnly) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	b.t.Errorf("queried with the settings of the session: %s", sql)
	return b.DB.Query(ctx, sql, args...)
}

// A caller's pool may use JIT, which is PostgreSQL's default: it compiles statements with a
// high estimated cost, which takes longer than running them.
func TestReads_IgnoreSessionSettings(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	settings := `select concat_ws(' ', current_setting('jit'), current_setting('enable_seqscan'),
		current_setting('plan_cache_mode'))`
	_, err = tx.Exec(t.Context(), `set jit = on; set jit_above_cost = 0`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	r := New(batchesOnly{tx, t}, g)
	var during, after string
	err = r.read(t.Context(), settings, nil, func(rows pgx.Rows) error {
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
		"stats":         func() error { _, err := r.Stats(t.Context()); return err },
		"overridden by": func() error { _, err := r.OverriddenBy(t.Context(), store.ID{1}); return err },
		"dead groups":   func() error { _, err := r.DeadGroups(t.Context(), DeadFilter{}, 0); return err },
		"dead stages":   func() error { _, _, err := r.DeadStages(t.Context(), DeadFilter{}, store.ID{}, 0); return err },
		"count dead":    func() error { _, _, err := r.CountDead(t.Context(), DeadFilter{}); return err },
		"find dead":     func() error { _, err := r.FindDead(t.Context(), DeadFilter{}); return err },
		"latency":       func() error { _, err := r.Latency(t.Context(), LatencyQuery{}); return err },
	} {
		if err := query(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
