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

func TestRunner_WorksWithAPoolOfOneConnection(t *testing.T) {
	t.Parallel()
	results := func(ctx context.Context, j *stages.Job) (any, error) {
		return stages.Result[int](ctx, j, "one") // also needs a connection
	}
	b := setup(t,
		stages.Stage{Name: "one", Slots: 4, Work: func(context.Context, *stages.Job) (any, error) { return 1, nil }},
		stages.Stage{Name: "two", Slots: 4, Needs: []string{"one"}, Work: results},
	).withPool(func(c *pgxpool.Config) { c.MinConns, c.MaxConns = 0, 1 })
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

// A read-only server is treated like one that cannot be reached: no attempt fails, and
// it is reported once.
func TestOutage_IncludesAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	b := setup(t, stages.Stage{
		Name: "one", Slots: 2, MaxAttempts: 1, Work: func(ctx context.Context, _ *stages.Job) (any, error) {
			select {
			case <-finish:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	exec := func(sql string) {
		t.Helper()
		if _, err := b.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	worker := b.withPool(samePool)
	id := b.submit()
	r := worker.start(func(r *stages.Runner) { r.Wakes = worker.listening() })
	r.wait(t, stages.StageStarted)
	readOnly := `do $$ begin
		execute format('alter database %I set default_transaction_read_only = ' || quote_literal('on'), current_database()); end $$`
	exec(readOnly)
	exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
		and pid <> pg_backend_pid()`)
	close(finish)
	if e := r.wait(t, stages.DatabaseUnavailable); e.Err == nil {
		t.Error("DatabaseUnavailable has no error")
	}
	exec(`set default_transaction_read_only = off; do $$ begin
		execute format('alter database %I reset default_transaction_read_only', current_database()); end $$`)
	r.wait(t, stages.DatabaseAvailable)
	if e := r.wait(t, stages.StageCompleted); e.Task != id {
		t.Errorf("task %s was completed", e.Task)
	}
	for len(r.events) > 0 {
		if e := <-r.events; e.Kind == stages.DatabaseUnavailable {
			t.Error("DatabaseUnavailable was reported twice")
		}
	}
	if h := b.history(id); len(h) != 1 || h[0].Outcome != "completed" {
		t.Errorf("history is %+v", h)
	}
}

func TestResult_TooLargeIsAPermanentError(t *testing.T) {
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
		t.Errorf("the stage is dead because of %v", e.Err)
	}
}

// Job.Token names the claim for systems outside the database.
func TestJob_TokenIsUniquePerAttempt(t *testing.T) {
	t.Parallel()
	tokens := make(chan store.ID, 10)
	b := setup(t, stages.Stage{Name: "one", Backoff: stages.Backoff{Base: time.Millisecond}, MaxAttempts: 3,
		Work: func(_ context.Context, j *stages.Job) (any, error) {
			tokens <- j.Token
			return nil, errors.New("work failed")
		}})
	id := b.submit()
	b.start(nil).wait(t, stages.StageDead)
	seen := map[store.ID]bool{}
	for _, a := range b.history(id) {
		if token := <-tokens; token != a.Token || seen[token] {
			t.Errorf("the job's token is %s, the history has %s", token, a.Token)
		}
		seen[a.Token] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d attempts, want 3", len(seen))
	}
}
