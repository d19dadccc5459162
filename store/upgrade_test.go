package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

func TestMigrate_RejectsTablesFromBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("update cuelight_schema set version = 5")
	r, err := b.Migrate(t.Context())
	if r.From != 5 || !errors.Is(err, store.ErrSchemaOlder) {
		t.Errorf("Migrate returned %+v, %v", r, err)
	}
	if err := b.Check(t.Context()); !errors.Is(err, store.ErrSchemaOlder) {
		t.Errorf("check returned %v", err)
	}
}

// deadlockingPool is a database whose first transactions end in a deadlock.
type deadlockingPool struct {
	*pgxpool.Pool
	deadlocks int
}

func (d *deadlockingPool) Begin(ctx context.Context) (pgx.Tx, error) {
	if d.deadlocks--; d.deadlocks >= 0 {
		return nil, &pgconn.PgError{Code: "40P01"}
	}
	return d.Pool.Begin(ctx)
}

func TestMigrate_IsRetriedAfterADeadlock(t *testing.T) {
	t.Parallel()
	st := store.New(&deadlockingPool{pgtest.New(t, pgtest.Schema{}), 2}, store.Video())
	if r, err := st.Migrate(t.Context()); err != nil || r.From != 0 {
		t.Errorf("Migrate returned %+v, %v", r, err)
	}
	must(t, st.Check(t.Context()))
}
