package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

const insertDead = `insert into tasks (source, ingest_status) select 'dead.mp4', 'dead' from generate_series(1, 4500)`

// retryFuncs returns the functions that retry many tasks, by name.
func (b bundle) retryFuncs() map[string]func(context.Context, store.RetryAllOptions) (store.RetryAllResult, error) {
	return map[string]func(context.Context, store.RetryAllOptions) (store.RetryAllResult, error){
		"tasks": func(ctx context.Context, o store.RetryAllOptions) (store.RetryAllResult, error) {
			return b.RetryAll(ctx, store.Filter{Status: dead}, "", o)
		},
		"tasks from a stage": func(ctx context.Context, o store.RetryAllOptions) (store.RetryAllResult, error) {
			return b.RetryAll(ctx, store.Filter{Status: dead}, "ingest", o)
		},
		"dead stages": func(ctx context.Context, o store.RetryAllOptions) (store.RetryAllResult, error) {
			return b.retryDead(ctx, report.DeadFilter{Stage: "ingest"}, o)
		},
	}
}

// Each batch is committed, with its record, before the next begins. A task that dies
// again in the meantime is not retried twice.
func TestRetryAll_RetriesEachTaskOnceInBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retry := range b.retryFuncs() {
		b.exec(`delete from tasks`)
		b.exec(`delete from pauses`)
		b.exec(insertDead)
		var steps []store.RetryAllResult
		r, err := retry(t.Context(), store.RetryAllOptions{
			Record: func(ctx context.Context, in *store.Store, tasks int) error {
				_, err := in.DB().Exec(ctx, "insert into pauses (stage) values ($1)", fmt.Sprint(name, b.queryInt("select count(*) from pauses")))
				return err
			},
			Progress: func(r store.RetryAllResult) {
				steps = append(steps, r)
				n := b.queryInt(`select count(*) from tasks where ingest_status = 'dead'`)
				if n != r.Remaining+2000*(len(steps)-1) {
					t.Errorf("%s: %d tasks are dead after %+v", name, n, r)
				}
				if n := b.queryInt(`select count(*) from pauses`); n != len(steps) {
					t.Errorf("%s: %d records after %d batches", name, n, len(steps))
				}
				b.exec(`update tasks set ingest_status = 'dead' where ingest_status = 'pending'`)
			},
		})
		want := []store.RetryAllResult{{4500, 2000, 2500}, {4500, 4000, 500}, {4500, 4500, 0}}
		if err != nil || r != want[2] || !slices.Equal(steps, want) {
			t.Errorf("%s: %+v, %v, with the progress %+v", name, r, err, steps)
		}
	}
}

// A retry that ended early, by an error or its time limit, can be repeated for the rest.
func TestRetryAll_ContinuesAfterAnInterruption(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retry := range b.retryFuncs() {
		b.exec(`delete from tasks`)
		b.exec(insertDead)
		r, err := retry(t.Context(), store.RetryAllOptions{Until: time.Now()})
		if want := (store.RetryAllResult{Matched: 4500, Retried: 2000, Remaining: 2500}); err != nil || r != want {
			t.Errorf("%s: with the time limit it returned %+v, %v, want %+v", name, r, err, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, err = retry(ctx, store.RetryAllOptions{Progress: func(store.RetryAllResult) { cancel() }})
		want := (store.RetryAllResult{Matched: 2500, Retried: 2000, Remaining: 500})
		if !errors.Is(err, context.Canceled) || r != want {
			t.Errorf("%s: cancelled it returned %+v, %v, want %+v", name, r, err, want)
		}
		r, err = retry(t.Context(), store.RetryAllOptions{})
		if want := (store.RetryAllResult{Matched: 500, Retried: 500}); err != nil || r != want {
			t.Errorf("%s: repeated it returned %+v, %v, want %+v", name, r, err, want)
		}
	}
}

// Tasks that changed since the retry began are not retried.
func TestRetryAll_SkipsTasksThatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retry := range b.retryFuncs() {
		b.exec(`delete from tasks`)
		b.exec(insertDead)
		r, err := retry(t.Context(), store.RetryAllOptions{Progress: func(r store.RetryAllResult) {
			if r.Remaining == 2500 {
				b.exec(`update tasks set ingest_status = 'completed' where ingest_status = 'dead'`)
			}
		}})
		if want := (store.RetryAllResult{Matched: 4500, Retried: 2000}); err != nil || r != want {
			t.Errorf("%s: it returned %+v, %v, want %+v", name, r, err, want)
		}
	}
}

func TestCountRetries_AgreesWithRetryAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	for i := range 6 {
		b.submitTask(store.Submission{Source: fmt.Sprint("v", i), UserID: fmt.Sprint("u", i%2)})
	}
	for i, c := range b.exchange(w, 4, nil, ingest).Claims {
		r := failed(c, 0)
		r.Dead = i < 3
		b.exchange(w, 0, []engine.Report{r})
	}
	for _, c := range []struct {
		f    store.Filter
		from string
	}{
		{store.Filter{Status: dead}, ""},
		{store.Filter{Status: dead, UserID: "u0"}, ""},
		{store.Filter{}, ""},
		{store.Filter{UserID: "u1"}, "ingest"},
		{store.Filter{Source: "nowhere"}, ""},
	} {
		n, err := b.CountRetries(t.Context(), c.f, c.from)
		if err != nil {
			t.Fatal(err)
		}
		rollBack := errors.New("roll back")
		err = b.InTx(t.Context(), func(in *store.Store) error {
			r, err := in.RetryAll(t.Context(), c.f, c.from, store.RetryAllOptions{})
			if err != nil || r.Retried != n || r.Matched != n {
				t.Errorf("%+v from %q: CountRetries returned %d, RetryAll %+v, %v", c.f, c.from, n, r, err)
			}
			return rollBack
		})
		if !errors.Is(err, rollBack) {
			t.Fatal(err)
		}
	}
	for _, stages := range [][2]string{{"nonsense", ""}, {"", "nonsense"}} {
		_, err := b.CountRetries(t.Context(), store.Filter{Stage: stages[0]}, stages[1])
		if !errors.Is(err, store.ErrNoStage) {
			t.Errorf("%v: %v", stages, err)
		}
	}
}
