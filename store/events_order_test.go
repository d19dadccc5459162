package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// Event ids are allocated before transactions commit. A reader that continues after the
// last id it read does not miss an event with a lower id that is committed later.
func TestEvents_WaitForSlowTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.submitTask(store.Submission{Source: "before"})
	slow, err := b.pool.Begin(ctx)
	must(t, err)
	_, err = b.WithTx(slow).Submit(ctx, store.Submission{Source: "slow"})
	must(t, err)
	undone, err := b.pool.Begin(ctx)
	must(t, err)
	_, err = b.WithTx(undone).Submit(ctx, store.Submission{Source: "undone"})
	must(t, err)
	quick := b.submitTask(store.Submission{Source: "quick"})

	seen := b.events(0)
	wantEvents(t, seen, "submitted")
	watermark, err := b.EventWatermark(ctx)
	must(t, err)
	must(t, slow.Commit(ctx))
	more := b.events(seen[0].ID)
	wantEvents(t, more, "submitted")
	if b.get(more[0].Task).Source != "slow" {
		t.Error("the event with the lower id does not come first")
	}
	if more[0].ID <= watermark {
		t.Error("the watermark was above an event that was not visible yet")
	}
	must(t, undone.Rollback(ctx))
	more = b.events(more[0].ID)
	wantEvents(t, more, "submitted")
	if more[0].Task != quick {
		t.Error("the last event is of another task")
	}
}

// A reader that runs while many sessions write reads all of their events, in the final
// order of their ids.
func TestEvents_ReaderMissesNoneOfConcurrentWriters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const writers, each = 8, 60
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for n := range each {
				err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
					for range 1 + n%3 {
						if _, err := b.WithTx(tx).Submit(t.Context(), store.Submission{Source: "a.mp4"}); err != nil {
							return err
						}
					}
					if (n+i)%5 == 0 {
						return errRolledBack
					}
					return nil
				})
				if err != nil && !errors.Is(err, errRolledBack) {
					t.Error(err)
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { writing.Wait(); close(written) }()
	var seen []int64
	for last := false; ; {
		var after int64
		if len(seen) > 0 {
			after = seen[len(seen)-1]
		}
		next, err := b.Events(t.Context(), store.EventQuery{After: after, Limit: 50})
		must(t, err)
		for _, e := range next {
			seen = append(seen, e.ID)
		}
		if last && len(next) == 0 {
			break
		}
		select {
		case <-written:
			last = true
		default:
		}
	}
	rows, err := b.pool.Query(t.Context(), `select id from events order by id`)
	must(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	must(t, err)
	if !slices.Equal(seen, all) {
		t.Errorf("the reader read %d events, and there are %d", len(seen), len(all))
	}
}

var errRolledBack = errors.New("rolled back")

// A transaction needs one lock, however many events it records.
func TestEvents_OneLockPerTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		for range 20 {
			if _, err := b.WithTx(tx).Submit(ctx, store.Submission{Source: "a.mp4"}); err != nil {
				return err
			}
			sub, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := b.WithTx(sub).Submit(ctx, store.Submission{Source: "b.mp4"}); err != nil {
				return err
			}
			if err := sub.Rollback(ctx); err != nil {
				return err
			}
		}
		var locks int
		err := tx.QueryRow(ctx,
			`select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()`).Scan(&locks)
		if locks != 1 {
			t.Errorf("the transaction holds %d locks, want 1", locks)
		}
		return err
	})
	must(t, err)
	if n := len(b.events(0)); n != 20 {
		t.Errorf("%d events, want 20", n)
	}
}

func TestEvents_HaveOneIDPerTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	const n = 2500
	b.exec(`insert into tasks (source) select 'a.mp4' from generate_series(1, $1)`, n)
	var claims []engine.Claim
	for len(claims) < n {
		out := b.exchange(w, n, nil, ingest)
		if len(out.Claims) > 1024 {
			t.Errorf("one statement claimed %d tasks; a row of the outbox has ids for 1024", len(out.Claims))
		}
		claims = append(claims, out.Claims...)
	}
	var reports []engine.Report
	for _, c := range claims {
		reports = append(reports, completed(c))
	}
	b.exchange(w, 100, reports)
	count := make(map[string]int)
	ids := make(map[int64]bool)
	var after int64
	for {
		events, err := b.Events(t.Context(), store.EventQuery{After: after, Limit: 999})
		must(t, err)
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			count[strings.TrimSpace(string(e.Type)+" "+e.Stage)]++
			ids[e.ID] = true
			after = e.ID
		}
	}
	want := map[string]int{
		"worker_started": 1, "submitted": n, "started ingest": n, "stage_completed ingest": n, "started transcode": 100,
		"started metadata": 100,
	}
	if fmt.Sprint(count) != fmt.Sprint(want) || len(ids) != 3*n+201 {
		t.Errorf("events are %v with %d ids, want %v", count, len(ids), want)
	}
}
