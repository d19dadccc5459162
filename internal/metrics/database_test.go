package metrics

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// fakeDB answers queries without rows, or with the error of answer.
type fakeDB struct {
	queries atomic.Int32
	answer  func(context.Context) error
}

// SendBatch counts the queries.
func (f *fakeDB) SendBatch(ctx context.Context, _ *pgx.Batch) pgx.BatchResults {
	f.queries.Add(1)
	if f.answer == nil {
		return fakeResults{}
	}
	return fakeResults{err: f.answer(ctx)}
}

// fakeResults supports Close only.
type fakeResults struct {
	pgx.BatchResults
	err error
}

// Close returns the error of the answer.
func (r fakeResults) Close() error { return r.err }

var errDown = errors.New("the database is down")

func TestSnapshot_AreCachedForTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{}
		d := NewDatabase(db, store.Video())
		for range 100 {
			if _, err := d.snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if n := db.queries.Load(); n != 2 {
			t.Errorf("%d queries in 20 s, want 2", n)
		}
	})
}

func TestSnapshot_ConcurrentCallersShareOneQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{answer: func(context.Context) error { time.Sleep(time.Second); return nil }}
		d := NewDatabase(db, store.Video())
		for range 50 {
			go func() {
				if f, err := d.snapshot(t.Context()); err != nil || f.at.IsZero() || len(f.values) == 0 {
					t.Errorf("got %v, %v", f, err)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := db.queries.Load(); n != 1 {
			t.Errorf("%d queries, want 1", n)
		}
	})
}

func TestSnapshot_WaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{answer: func(context.Context) error { time.Sleep(3 * time.Second); return nil }}
		d := NewDatabase(db, store.Video())
		go d.snapshot(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.snapshot(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v; want DeadlineExceeded", err)
		}
		time.Sleep(3 * time.Second)
		if f, err := d.snapshot(t.Context()); err != nil || f.at.IsZero() {
			t.Errorf("the first caller got %v", err)
		}
	})
}

// A client that disconnects must not fail the query of all others.
func TestSnapshot_QueryOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{answer: func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				return nil
			}
		}}
		d := NewDatabase(db, store.Video())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		if _, err := d.snapshot(ctx); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestSnapshot_ReturnsTheLastOnesWithTheError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{}
		d := NewDatabase(db, store.Video())
		before, err := d.snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		db.answer = func(context.Context) error { return errDown }
		time.Sleep(time.Minute)
		earlier := db.queries.Load()
		for range 30 { // in three seconds
			f, err := d.snapshot(t.Context())
			if !errors.Is(err, errDown) || !f.at.Equal(before.at) || len(f.values) == 0 {
				t.Fatalf("a snapshot of %s, and %v", f.at, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := db.queries.Load() - earlier; n != 3 {
			t.Errorf("%d queries in 3 s, want 3", n)
		}
		db.answer = nil
		time.Sleep(time.Second)
		if f, err := d.snapshot(t.Context()); err != nil || !f.at.After(before.at) {
			t.Errorf("after the recovery: a snapshot of %s, and %v", f.at, err)
		}
	})
}

func TestSnapshot_EndsAfterTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{answer: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		d := NewDatabase(db, store.Video())
		began := time.Now()
		f, err := d.snapshot(t.Context())
		if took := time.Since(began); took != 4*time.Second || !errors.Is(err, context.DeadlineExceeded) || !f.at.IsZero() {
			t.Errorf("after %s: %v and a snapshot of %s", took, err, f.at)
		}
	})
}

func TestSnapshot_ServerEndsASlowStatement(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := NewDatabase(slow{conn, ctx}, g)
	d.maxAge, d.timeout = time.Nanosecond, time.Second
	if _, err := d.snapshot(t.Context()); err != nil { // it is prepared from now on
		t.Fatal(err)
	}
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	if _, err := lock.Exec(t.Context(), `lock table cuelight_deliveries in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	_, err = d.snapshot(t.Context())
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "57014" { // query_canceled
		t.Errorf("error %v; want query_canceled", err)
	}
}

// slow ignores the deadline of its caller.
type slow struct {
	DB
	ctx context.Context
}

// SendBatch uses the context of slow.
func (s slow) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	return s.DB.SendBatch(s.ctx, b)
}

func TestSnapshot_FailsWithoutTables(t *testing.T) {
	t.Parallel()
	d := NewDatabase(pgtest.New(t, pgtest.Schema{}), store.Video())
	var pg *pgconn.PgError
	if _, err := d.snapshot(t.Context()); !errors.As(err, &pg) || pg.Code != "42P01" {
		t.Errorf("error %v; want undefined_table", err)
	}
}
