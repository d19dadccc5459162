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

const deadByHand = `insert into tasks (source, ingest_status) select 'dead.mp4', 'dead' from generate_series(1, 4500)`

// retries are the ways to retry many tasks.
func (b bundle) retries() map[string]func(context.Context, store.RetryAllOptions) (store.RetryAllResult, error) {
	return map[string]func(context.Context, store.RetryAllOptions) (store.RetryAllResult, error){
		"tasks": func(ctx context.Context, o store.RetryAllOptions) (store.RetryAllResult, error) {
			return b.RetryAll(ctx, store.Filter{Status: dead}, "", o)
		},
		"tasks from a stage": func(ctx context.Context, o store.RetryAllOptions) (store.RetryAllResult, error) {
			return b.RetryAll(ctx, store.Filter{Status: dead}, "ingest", o)
		},
		"dead letters": func(ctx context.Context, o store.RetryAllOptions) (store.RetryAllResult, error) {
			return b.retryDead(ctx, report.DeadFilter{Stage: "ingest"}, o)
		},
	}
}

// Each batch is there for others when the next begins, with its audit, and what dies
// again meanwhile is not taken twice.
func TestManyTasksAreRetriedInBatchesEachOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retry := range b.retries() {
		b.exec(`truncate tasks, cuelight_audit`)
		b.exec(deadByHand)
		var steps []store.RetryAllResult
		r, err := retry(t.Context(), store.RetryAllOptions{
			Audit: func(tasks int) (store.AuditEntry, error) {
				return store.AuditEntry{Actor: "test", Action: "retry_all"}, nil
			},
			Progress: func(r store.RetryAllResult) {
				steps = append(steps, r)
				if n := b.number(`select count(*) from tasks where ingest_status = 'dead'`); n != r.Remaining+2000*(len(steps)-1) {
					t.Errorf("%s: %d are dead after %+v", name, n, r)
				}
				if n := b.number(`select count(*) from cuelight_audit`); n != len(steps) {
					t.Errorf("%s: %d entries of the audit after %d batches", name, n, len(steps))
				}
				b.exec(`update tasks set ingest_status = 'dead' where ingest_status = 'pending'`)
			},
		})
		want := []store.RetryAllResult{{4500, 2000, 2500}, {4500, 4000, 500}, {4500, 4500, 0}}
		if err != nil || r != want[2] || !slices.Equal(steps, want) {
			t.Errorf("%s: %+v, %v, by way of %+v", name, r, err, steps)
		}
	}
}

// A retry that was cut off, by an error or because its time is over, can be asked for
// once more and goes on with the rest.
func TestRetryOfManyTasksGoesOnWithTheRest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retry := range b.retries() {
		b.exec(`truncate tasks`)
		b.exec(deadByHand)
		r, err := retry(t.Context(), store.RetryAllOptions{Until: time.Now()})
		if want := (store.RetryAllResult{Matched: 4500, Retried: 2000, Remaining: 2500}); err != nil || r != want {
			t.Errorf("%s: without time it is %+v, %v, want %+v", name, r, err, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, err = retry(ctx, store.RetryAllOptions{Progress: func(store.RetryAllResult) { cancel() }})
		if want := (store.RetryAllResult{Matched: 2500, Retried: 2000, Remaining: 500}); !errors.Is(err, context.Canceled) || r != want {
			t.Errorf("%s: cut off it is %+v, %v, want %+v", name, r, err, want)
		}
		r, err = retry(t.Context(), store.RetryAllOptions{})
		if want := (store.RetryAllResult{Matched: 500, Retried: 500}); err != nil || r != want {
			t.Errorf("%s: the rest is %+v, %v, want %+v", name, r, err, want)
		}
	}
}

// Tasks that others have changed since it began are left to them.
func TestRetryOfManyTasksLeavesWhatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retry := range b.retries() {
		b.exec(`truncate tasks`)
		b.exec(deadByHand)
		r, err := retry(t.Context(), store.RetryAllOptions{Progress: func(r store.RetryAllResult) {
			if r.Remaining == 2500 {
				b.exec(`update tasks set ingest_status = 'completed' where ingest_status = 'dead'`)
			}
		}})
		if want := (store.RetryAllResult{Matched: 4500, Retried: 2000}); err != nil || r != want {
			t.Errorf("%s: it is %+v, %v, want %+v", name, r, err, want)
		}
	}
}
