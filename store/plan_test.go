package store

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
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
	type read struct {
		sql     string
		args    string
		indexes string
	}
	nulls := plantest.Nulls
	reads := map[string]read{
		"stopped workers":  {stoppedWorkersSQL, nulls(2), "workers_pkey"},
		"find workers":     {findWorkersSQL, nulls(1), "workers_pkey"},
		"workers of a key": {workersOfSQL, nulls(1), "workers_alive"},
		"get":              {getSQL, nulls(1), "tasks_pkey steps_pkey attempts_pkey"},
		"params":           {paramsSQL, nulls(1), "tasks_pkey"},
		"history":          {historySQL, nulls(1), "attempts_pkey workers_pkey"},
		"parts":            {partsSQL, nulls(1), "steps_pkey attempts_pkey"},
		"prune tasks":      {pruneTasksSQL, nulls(5) + ", 'dead'", "tasks_state tasks_overridden steps_pkey"},
		"ends of tasks":    {taskEndsSQL, nulls(1), "tasks_pkey tasks_overridden steps_pkey"},
		"requests":         {submittedSQL, nulls(2), "tasks_request"},
		"deleted requests": {deletedRequestsSQL, nulls(1), "deleted_tasks_request"},
	}
	indexes := map[pageSource]string{
		sourceStates: "tasks_state", sourceUser: "tasks_user", sourceRequest: "tasks_request", sourceRunning: "steps_running",
		sourceRetried: "steps_waiting steps_retried",
	}
	for source := range pageSources {
		for _, oldest := range []bool{false, true} {
			name := fmt.Sprintf("page of source %d, oldest first: %t", source, oldest)
			reads[name] = read{pageText(source, oldest), nulls(13), indexes[source] + " tasks_pkey"}
		}
	}
	for name, c := range reads {
		plan := plantest.WantIndexes(t, conn, name, Video().SQL(c.sql), c.args, strings.Fields(c.indexes)...)
		// A page must not sort what it reads in the order of an index.
		sorted := regexp.MustCompile(`Sort\n.*Sort Key: .*\n +-> +(Index|Bitmap)[^\n]* on tasks`)
		if strings.HasPrefix(name, "page") && !strings.Contains(name, fmt.Sprint("source ", sourceRequest)) && sorted.MatchString(plan) {
			t.Errorf("%s sorts rows from an index:\n%s", name, plan)
		}
	}
}

// Statements are as readable as code: short lines, in lower case.
func TestStatements_AreShortLinesInLowerCase(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	keyword := regexp.MustCompile(`\b(SELECT|FROM|WHERE|AND|UPDATE|INSERT|DELETE|JOIN|ORDER BY|GROUP BY|LIMIT|WITH|SET|AS)\b`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING || !strings.Contains(text.Value, "/* ") && !strings.Contains(text.Value, "select ") {
				return true
			}
			for line := range strings.SplitSeq(text.Value, "\n") {
				if len(line) > 120 || keyword.MatchString(line) {
					t.Errorf("%s: the line of a statement is longer than 120 bytes, or not in lower case:\n%s", file, line)
				}
			}
			return true
		})
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
