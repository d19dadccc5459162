package store_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// After a crash, PostgreSQL may allocate ids again that a transaction with an asynchronous
// commit had used. So the next session leaves a gap.
func TestEventIDs_AreNotReusedAfterACrash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	before, err := b.EventWatermark(t.Context())
	must(t, err)
	b.exec(`truncate event_epoch`) // as recovery does with unlogged tables
	b.pool.Reset()
	b.submit()
	b.submit()
	events := b.events(before)
	if len(events) != 2 || events[0].ID < before+1<<16*1_000_000 || events[1].ID != events[0].ID+1<<16 {
		t.Errorf("after event %d there are %+v", before, events)
	}
}

// Ids that were allocated after a dump could be allocated again where it is restored.
func TestEventIDs_AreNotReusedAfterARestore(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]string{
		"in another cluster":  `update event_epoch set source = '1/1'`,
		"in the same cluster": `update event_epoch set source = cuelight_server() || '/1'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.submit()
			before, err := b.EventWatermark(t.Context())
			must(t, err)
			b.exec(restore)
			b.pool.Reset()
			b.submit()
			if events := b.events(before); len(events) != 1 || events[0].ID < before+1<<16*1_000_000 {
				t.Errorf("after event %d there are %+v", before, events)
			}
		})
	}
}

// If more ids were allocated after a dump than the gap holds, or a database was created
// again, readers have positions beyond its ids. If they waited there, they would miss the
// events before these positions.
func TestEvents_ReportPositionsThatWereNeverReached(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.submit()
	b.exec(`select setval('outbox_id', (select last_value from outbox_id) + 2000000)`) // after the dump
	id := b.submit()
	seen, err := b.EventWatermark(ctx)
	must(t, err)
	newest, err := b.LastAllocatedEvent(ctx)
	must(t, err)
	for name, after := range map[string]int64{"the watermark": seen, "the last allocated": newest} {
		if events, err := b.Events(ctx, store.EventQuery{After: after}); err != nil || len(events) != 0 {
			t.Errorf("after %s: %v, %v", name, events, err)
		}
	}
	b.exec(`select setval('outbox_id', (select last_value from outbox_id) - 2000000)`)
	b.exec(`update event_epoch set source = '1/1'`)
	b.pool.Reset()
	for range 2 { // before the first event after the restore, and after it
		for _, q := range []store.EventQuery{{After: seen}, {After: seen, Task: id}, {After: 1 << 62}} {
			if _, err := b.Events(ctx, q); !errors.Is(err, store.ErrEventsGone) {
				t.Errorf("after %d, which was never allocated: %v", q.After, err)
			}
		}
		b.submit()
	}
}

// After a crash the ids that were allocated last may not be on disk, and are skipped.
func TestEvents_ReaderContinuesAfterACrash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	seen := b.events(0)[0].ID
	b.exec(`select setval('outbox_id', (select last_value from outbox_id) + 500)`)
	b.submit()
	seen = b.events(seen)[0].ID
	b.exec(`truncate event_epoch`)
	b.exec(`select setval('outbox_id', (select last_value from outbox_id) - 500)`)
	b.pool.Reset()
	if events := b.events(seen); len(events) != 0 {
		t.Errorf("events are %+v", events)
	}
	b.submit()
	wantEvents(t, b.events(seen), "submitted")
}

// Sessions that allocate their first ids after a crash at the same time must not set the
// sequence back for each other.
func TestEventIDs_AreUniqueForConcurrentSessionsAfterACrash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`truncate event_epoch`)
	const sessions, times = 4, 3000
	var all sync.WaitGroup
	allocated := make([][]int64, sessions)
	for i := range sessions {
		all.Go(func() {
			conn, err := b.pool.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Release()
			// After the rollback, each time is the first.
			var batch pgx.Batch
			for range times {
				batch.Queue(`begin`)
				batch.Queue(`select cuelight_video_first_event_id('outbox_id')`).QueryRow(func(row pgx.Row) error {
					var id int64
					err := row.Scan(&id)
					allocated[i] = append(allocated[i], id)
					return err
				})
				batch.Queue(`rollback`)
			}
			if err := conn.SendBatch(t.Context(), &batch).Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	ids := slices.Concat(allocated...)
	slices.Sort(ids)
	if once := slices.Compact(slices.Clone(ids)); len(once) != sessions*times {
		t.Errorf("%d ids were allocated twice", len(ids)-len(once))
	}
}

func TestEvents_RejectRepeatableRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := pgx.BeginTxFunc(t.Context(), b.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		_, err := b.WithTx(tx).Events(t.Context(), store.EventQuery{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "repeatable read") {
		t.Errorf("error is %v", err)
	}
}

func TestPruneEvents_ReportsGapsToReaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for range 3 {
		b.submit()
	}
	b.exec(`update outbox set at = now() - interval '1 hour' where id <= 2`)
	seen := b.events(0)[0].ID
	_, more, err := b.PruneEvents(ctx, 30*time.Minute)
	if err != nil || more {
		t.Fatalf("PruneEvents returned %v, %v", more, err)
	}
	if _, err := b.Events(ctx, store.EventQuery{After: seen}); !errors.Is(err, store.ErrEventsGone) {
		t.Errorf("for a reader that missed an event the error is %v", err)
	}
	left := b.events(0)
	if len(left) != 1 {
		t.Fatalf("%d events are left, want 1", len(left))
	}
	watermark, err := b.EventWatermark(ctx)
	must(t, err)
	_, _, err = b.PruneEvents(ctx, 0)
	must(t, err)
	b.submit()
	if events := b.events(watermark); len(events) != 1 {
		t.Errorf("after the pruned events there are %d events, want 1", len(events))
	}
}

// A reader whose next events are pruned while it reads gets an error.
func TestPruneEvents_DuringAReadIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for range 3 {
		b.submit()
	}
	seen := b.events(0)[0].ID
	tx, err := b.pool.Begin(ctx)
	must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Exec(ctx, `lock table outbox in access exclusive mode`)
	must(t, err)
	read := make(chan error, 1)
	go func() {
		_, err := b.Events(ctx, store.EventQuery{After: seen})
		read <- err
	}()
	waittest.Until(t, "the reader waits for the lock", func() bool {
		return b.queryInt(`select count(*) from pg_locks where relation = 'outbox'::regclass and not granted
			and database = (select oid from pg_database where datname = current_database())`) > 0
	})
	_, _, err = store.New(tx, b.Graph()).PruneEvents(ctx, 0)
	must(t, err)
	must(t, tx.Commit(ctx))
	if err := <-read; !errors.Is(err, store.ErrEventsGone) {
		t.Errorf("error is %v", err)
	}
}

// A reader has missed nothing if the last event it read is the last that was pruned.
func TestPruneEvents_ReaderAtTheEndContinues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.SubmitAll(t.Context(), []store.Submission{{Source: "a"}, {Source: "b"}})
	must(t, err)
	events := b.events(0)
	_, _, err = b.PruneEvents(t.Context(), 0)
	must(t, err)
	if _, err := b.Events(t.Context(), store.EventQuery{After: events[0].ID}); !errors.Is(err, store.ErrEventsGone) {
		t.Errorf("for a reader that missed an event the error is %v", err)
	}
	b.submit()
	wantEvents(t, b.events(events[1].ID), "submitted")
}

// The events of one task are searched only from its submission on: the outbox may have
// millions of rows, and no index on the tasks of an exchange.
func TestEvents_OfATaskReadOnlyRowsSinceItsSubmission(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, sql := range []string{
		`insert into outbox (at, type, data)
		 select now() - interval '1 day', 'progress', 
		        jsonb_build_array(jsonb_build_object('task', cuelight_id(), 'stage', 'transcode', 'percent', 50))
		   from generate_series(1, 50000)`,
		`select setval('outbox_id', (select last_value from outbox_id) + 1048576)`, // as after a crash
		`insert into outbox (at, type, tasks, stages, parts, attempts)
		 select now() - interval '2 hours', 'started', array[cuelight_id(), cuelight_id()], '{ingest,ingest}', '{0,0}', '{1,1}'
		   from generate_series(1, 50000)`,
		`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome)
		 select cuelight_id(), cuelight_id(), 'ingest', 1, cuelight_id(), now() - interval '2 hours', now() - interval '2 hours', 'completed'
		   from generate_series(1, 50000)`,
		`analyze outbox`, `analyze attempts`,
	} {
		b.exec(sql)
	}
	from, err := b.EventWatermark(t.Context())
	must(t, err)
	ids := []store.ID{b.submit(), {0: 1, 6: 0x40}, {0: 0xff, 6: 0x70}} // the second has no time, the third a time in the future
	b.exec(`insert into tasks (id, source) select unnest($1::uuid[]), 'a'`, ids[1:])
	w := b.worker()
	for range ids {
		b.completeAll(w, b.claim(w, ingest))
	}
	must(t, b.Delete(t.Context(), ids[0], store.DeleteOptions{}))
	all := b.events(from)
	for _, id := range ids {
		var want []store.Event
		for _, e := range all {
			if e.Task == id {
				want = append(want, e)
			}
		}
		got, err := b.Events(t.Context(), store.EventQuery{Task: id})
		if err != nil || len(want) < 10 || !reflect.DeepEqual(got, want) {
			t.Errorf("task %s has %d events, want %d: %v", id, len(got), len(want), err)
		}
	}
	var plan []struct {
		Plan map[string]any
	}
	must(t, b.pool.QueryRow(t.Context(),
		`explain (analyze, buffers, format json) select * from cuelight_video_events(0, 100, $1)`, ids[0]).Scan(&plan))
	if n := plan[0].Plan["Shared Hit Blocks"].(float64) + plan[0].Plan["Shared Read Blocks"].(float64); n > 500 {
		t.Errorf("%.0f blocks were read", n)
	}
}
