package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// What was drawn by a transaction that did not wait for the disk may be drawn
// again after a crash, so that is where the next session begins far off.
func TestIdsAreNotDrawnAgainAfterACrash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	before, err := b.LastEvent(t.Context())
	must(t, err)
	b.exec(`truncate cuelight_uncrashed`) // as recovery does with what is unlogged
	b.pool.Reset()
	b.submit()
	b.submit()
	events := b.events(before)
	if len(events) != 2 || events[0].ID < before+1<<16*1_000_000 || events[1].ID != events[0].ID+1<<16 {
		t.Errorf("after %d there is %+v", before, events)
	}
}

// What was drawn after a dump was made is drawn again where it is restored.
func TestIdsAreNotDrawnAgainAfterARestore(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]string{
		"in another cluster": `update cuelight_uncrashed set cluster = cluster + 1`,
		"in this one": `create sequence again; select setval('again', (select last_value from outbox_id));
			alter table outbox alter id set default cuelight_place('again');
			drop sequence outbox_id; alter sequence again rename to outbox_id`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.submit()
			before, err := b.LastEvent(t.Context())
			must(t, err)
			b.exec(restore)
			b.pool.Reset()
			b.submit()
			if events := b.events(before); len(events) != 1 || events[0].ID < before+1<<16*1_000_000 {
				t.Errorf("after %d there is %+v", before, events)
			}
		})
	}
}

// Sessions that draw their first places after a crash at the same time must not set
// back the sequence under one another.
func TestFirstPlacesAfterACrashAreDrawnOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`truncate cuelight_uncrashed`)
	const sessions, times = 4, 3000
	var all sync.WaitGroup
	drawn := make([][]int64, sessions)
	for i := range sessions {
		all.Go(func() {
			conn, err := b.pool.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Release()
			// Rolled back, each time is the first again.
			var batch pgx.Batch
			for range times {
				batch.Queue(`begin`)
				batch.Queue(`select cuelight_first_place('outbox_id')`).QueryRow(func(row pgx.Row) error {
					var place int64
					err := row.Scan(&place)
					drawn[i] = append(drawn[i], place)
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
	places := slices.Concat(drawn...)
	slices.Sort(places)
	if once := slices.Compact(slices.Clone(places)); len(once) != sessions*times {
		t.Errorf("%d places were drawn twice", len(places)-len(once))
	}
}

func TestEventsCannotBeReadFromAnOldSnapshot(t *testing.T) {
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

func TestOldEventsAreForgottenAndReadersToldSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for range 3 {
		b.submit()
	}
	b.exec(`update outbox set at = now() - interval '1 hour' where id <= 2`)
	seen := b.events(0)[0].ID
	more, err := b.Forget(ctx, 30*time.Minute)
	if err != nil || more {
		t.Fatalf("forget says %v, %v", more, err)
	}
	if _, err := b.Events(ctx, store.EventQuery{After: seen}); !errors.Is(err, store.ErrEventsGone) {
		t.Errorf("for a reader who missed one the error is %v", err)
	}
	left := b.events(0)
	if len(left) != 1 {
		t.Fatalf("%d events are left, want 1", len(left))
	}
	now, err := b.LastEvent(ctx)
	must(t, err)
	_, err = b.Forget(ctx, 0)
	must(t, err)
	b.submit()
	if events := b.events(now); len(events) != 1 {
		t.Errorf("after all that was forgotten there are %d events, want 1", len(events))
	}
}

// A reader who is about to read what is deleted in this very moment is told so.
func TestEventsThatAreForgottenWhileTheyAreReadAreNotPassedOver(t *testing.T) {
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
	for waiting := 0; waiting == 0; waiting = b.number(`select count(*) from pg_locks where relation = 'outbox'::regclass and not granted
		and database = (select oid from pg_database where datname = current_database())`) {
		time.Sleep(time.Millisecond)
	}
	_, err = b.WithTx(tx).Forget(ctx, 0)
	must(t, err)
	must(t, tx.Commit(ctx))
	if err := <-read; !errors.Is(err, store.ErrEventsGone) {
		t.Errorf("error is %v", err)
	}
}

// A reader has missed nothing if the last event it saw is the last that was deleted.
func TestReaderOfAllThatIsForgottenGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.SubmitAll(t.Context(), []store.Submission{{Source: "a"}, {Source: "b"}})
	must(t, err)
	events := b.events(0)
	_, err = b.Forget(t.Context(), 0)
	must(t, err)
	if _, err := b.Events(t.Context(), store.EventQuery{After: events[0].ID}); !errors.Is(err, store.ErrEventsGone) {
		t.Errorf("for a reader who missed one the error is %v", err)
	}
	b.submit()
	wantTold(t, b.events(events[1].ID), "submitted")
}
