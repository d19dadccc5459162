package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
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

// Each batch is committed, with its audit entry, before the next begins. A task that dies
// again in the meantime is not retried twice.
func TestRetryAll_RetriesEachTaskOnceInBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retry := range b.retryFuncs() {
		b.exec(`truncate tasks, audit cascade`)
		b.exec(insertDead)
		var steps []store.RetryAllResult
		r, err := retry(t.Context(), store.RetryAllOptions{
			Audit: func(tasks int) (store.AuditEntry, error) {
				return store.AuditEntry{Actor: "test", Action: "retry_all"}, nil
			},
			Progress: func(r store.RetryAllResult) {
				steps = append(steps, r)
				n := b.queryInt(`select count(*) from tasks where ingest_status = 'dead'`)
				if n != r.Remaining+2000*(len(steps)-1) {
					t.Errorf("%s: %d tasks are dead after %+v", name, n, r)
				}
				if n := b.queryInt(`select count(*) from audit`); n != len(steps) {
					t.Errorf("%s: %d audit entries after %d batches", name, n, len(steps))
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
		b.exec(`truncate tasks cascade`)
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
		b.exec(`truncate tasks cascade`)
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
