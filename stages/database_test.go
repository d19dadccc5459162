package stages_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// over is the bundle on another pool, to the same database.
func (b bundle) over(change func(*pgxpool.Config)) bundle {
	b.t.Helper()
	config := b.pool.Config()
	change(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	b = newBundle(b.t, pool, b.pipeline)
	return b
}

func TestPoolOfOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	results := func(ctx context.Context, j *stages.Job) (any, error) {
		return stages.Result[int](ctx, j, "one") // asks the database, too
	}
	b := setup(t,
		stages.Stage{Name: "one", Workers: 4, Work: func(context.Context, *stages.Job) (any, error) { return 1, nil }},
		stages.Stage{Name: "two", Workers: 4, Needs: []string{"one"}, Work: results},
	).over(func(c *pgxpool.Config) { c.MinConns, c.MaxConns = 0, 1 })
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	for range 100 {
		b.submit()
	}
	for range 200 {
		if e := r.wait(t, stages.StageCompleted); e.Err != nil {
			t.Error(e.Err)
		}
	}
}

// A server that refuses to write is waited for as one that is away: nothing
// fails, and it is told once.
func TestReadOnlyDatabaseIsWaitedFor(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	b := setup(t, stages.Stage{Name: "one", Workers: 2, MaxAttempts: 1, Work: func(ctx context.Context, _ *stages.Job) (any, error) {
		select {
		case <-finish:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	exec := func(sql string) {
		t.Helper()
		if _, err := b.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	worker := b.over(func(*pgxpool.Config) {})
	id := b.submit()
	r := worker.start(func(r *stages.Runner) { r.Wakes = worker.listening() })
	r.wait(t, stages.StageStarted)
	readOnly := `do $$ begin
		execute format('alter database %I set default_transaction_read_only = ' || quote_literal('on'), current_database()); end $$`
	exec(readOnly)
	exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	close(finish)
	if e := r.wait(t, stages.DatabaseLost); e.Err == nil {
		t.Error("no reason was given")
	}
	exec(`set default_transaction_read_only = off; do $$ begin
		execute format('alter database %I reset default_transaction_read_only', current_database()); end $$`)
	r.wait(t, stages.DatabaseBack)
	if e := r.wait(t, stages.StageCompleted); e.Task != id {
		t.Errorf("completed is %s", e.Task)
	}
	for len(r.events) > 0 {
		if e := <-r.events; e.Kind == stages.DatabaseLost {
			t.Error("it was told twice")
		}
	}
	if h := b.history(id); len(h) != 1 || h[0].Outcome != "completed" {
		t.Errorf("history is %+v", h)
	}
}

func TestResultThatIsTooLargeEndsItsTaskAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Work: func(_ context.Context, j *stages.Job) (any, error) {
		if j.Source == "large" {
			return make([]byte, 20<<20), nil
		}
		return nil, nil
	}})
	r := b.start(nil)
	if _, err := b.Submit(t.Context(), store.Submission{Source: "large"}); err != nil {
		t.Fatal(err)
	}
	if e := r.wait(t, stages.StageDead); !stages.IsPermanent(e.Err) || errors.Unwrap(e.Err) == nil {
		t.Errorf("it died of %v", e.Err)
	}
}

// What a stage does outside the database can be tied to its claim.
func TestEveryAttemptHasATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	tokens := make(chan store.ID, 10)
	b := setup(t, stages.Stage{Name: "one", Backoff: stages.Backoff{Base: time.Millisecond}, MaxAttempts: 3,
		Work: func(_ context.Context, j *stages.Job) (any, error) {
			tokens <- j.Token
			return nil, errors.New("no luck")
		}})
	id := b.submit()
	b.start(nil).wait(t, stages.StageDead)
	seen := map[store.ID]bool{}
	for _, a := range b.history(id) {
		if token := <-tokens; token != a.Token || seen[token] {
			t.Errorf("the attempt's token was %s, the history has %s", token, a.Token)
		}
		seen[a.Token] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d attempts", len(seen))
	}
}
