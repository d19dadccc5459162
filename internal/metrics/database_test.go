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

// fakeDB answers, with no rows, as answer says.
type fakeDB struct {
	asked  atomic.Int32
	answer func(context.Context) error
}

// SendBatch counts the queries and answers with no rows.
func (f *fakeDB) SendBatch(ctx context.Context, _ *pgx.Batch) pgx.BatchResults {
	f.asked.Add(1)
	if f.answer == nil {
		return fakeResults{}
	}
	return fakeResults{err: f.answer(ctx)}
}

// fakeResults is closed, and asked for nothing else.
type fakeResults struct {
	pgx.BatchResults
	err error
}

// Close returns the error of the answer.
func (r fakeResults) Close() error { return r.err }

var errAway = errors.New("the database is away")

func TestFigures_AreCachedForTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{}
		d := NewDatabase(db, store.Video(), DatabaseOptions{})
		for range 100 {
			if _, err := d.Figures(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if n := db.asked.Load(); n != 2 {
			t.Errorf("asked %d times in 20 s, want 2", n)
		}
	})
}

func TestFigures_ConcurrentCallersShareOneQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{answer: func(context.Context) error { time.Sleep(time.Second); return nil }}
		d := NewDatabase(db, store.Video(), DatabaseOptions{})
		for range 50 {
			go func() {
				if f, err := d.Figures(t.Context()); err != nil || f.At.IsZero() || len(f.Stages) != 5 {
					t.Errorf("got %v, %v", f, err)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := db.asked.Load(); n != 1 {
			t.Errorf("asked %d times, want 1", n)
		}
	})
}

func TestFigures_WaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{answer: func(context.Context) error { time.Sleep(3 * time.Second); return nil }}
		d := NewDatabase(db, store.Video(), DatabaseOptions{})
		go d.Figures(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Figures(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the time is over", err)
		}
		time.Sleep(3 * time.Second)
		if f, err := d.Figures(t.Context()); err != nil || f.At.IsZero() {
			t.Errorf("whoever asked first did not get an answer: %v", err)
		}
	})
}

// A browser that goes away must not make everybody believe that the database has.
func TestFigures_QueryOutlivesItsCaller(t *testing.T) {
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
		d := NewDatabase(db, store.Video(), DatabaseOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		if _, err := d.Figures(ctx); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestFigures_ReturnsTheLastOnesWithTheError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{}
		d := NewDatabase(db, store.Video(), DatabaseOptions{})
		before, err := d.Figures(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		db.answer = func(context.Context) error { return errAway }
		time.Sleep(time.Minute)
		asked := db.asked.Load()
		for range 30 { // in three seconds
			f, err := d.Figures(t.Context())
			if !errors.Is(err, errAway) || !f.At.Equal(before.At) || len(f.Stages) != 5 {
				t.Fatalf("got figures of %s, and %v", f.At, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := db.asked.Load() - asked; n != 3 {
			t.Errorf("asked %d times in 3 s, want 3", n)
		}
		db.answer = nil
		time.Sleep(time.Second)
		if f, err := d.Figures(t.Context()); err != nil || !f.At.After(before.At) {
			t.Errorf("with the database back, got figures of %s, and %v", f.At, err)
		}
	})
}

func TestFigures_EndsAfterTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &fakeDB{answer: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		d := NewDatabase(db, store.Video(), DatabaseOptions{})
		began := time.Now()
		f, err := d.Figures(t.Context())
		if took := time.Since(began); took != 4*time.Second || !errors.Is(err, context.DeadlineExceeded) || !f.At.IsZero() {
			t.Errorf("after %s got %v and figures of %s", took, err, f.At)
		}
	})
}

func TestFigures_ReturnsACopy(t *testing.T) {
	t.Parallel()
	d := NewDatabase(&fakeDB{}, store.Video(), DatabaseOptions{})
	for range 2 {
		f, err := d.Figures(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if f.Stages[0].Name != "ingest" {
			t.Errorf("stages are %v", f.Stages)
		}
		f.Stages[0].Name = "changed"
	}
}

// The server gives up, too, and does not go on for nobody.
func TestFigures_ServerEndsASlowStatement(t *testing.T) {
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
	d := NewDatabase(slow{conn, ctx}, g, DatabaseOptions{MaxAge: time.Nanosecond, Timeout: time.Second})
	if _, err := d.Figures(t.Context()); err != nil { // it is prepared from now on
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
	_, err = d.Figures(t.Context())
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "57014" { // query_canceled
		t.Errorf("got %v, want that the statement was cancelled by the server", err)
	}
}

// slow has more time than its caller.
type slow struct {
	DB
	ctx context.Context
}

// SendBatch ignores the deadline of its caller.
func (s slow) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	return s.DB.SendBatch(s.ctx, b)
}

func TestFigures_FailsWithoutTables(t *testing.T) {
	t.Parallel()
	d := NewDatabase(pgtest.New(t, pgtest.Schema{}), store.Video(), DatabaseOptions{})
	var pg *pgconn.PgError
	if _, err := d.Figures(t.Context()); !errors.As(err, &pg) || pg.Code != "42P01" {
		t.Errorf("got %v, want that tables are missing", err)
	}
}
