package uitest

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// RunWorkers sends heartbeats for the workers of a seeded database, with increasing
// progress, until ctx is done.
func RunWorkers(ctx context.Context, pool *pgxpool.Pool, workers []store.ID) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	st := store.New(pool, store.Video())
	for i := range workers {
		if _, err := conn.Exec(ctx, "select pg_advisory_lock_shared($1)", 1000+i); err != nil {
			return err
		}
	}
	defer func() {
		// An error means that the connection is closed, which unlocks them, too.
		_, _ = conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock_all()")
	}()
	for {
		for i, id := range workers {
			if err := heartbeat(ctx, st, id, int64(1000+i)); err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func heartbeat(ctx context.Context, st *store.Store, id store.ID, session int64) error {
	workers, err := st.Workers(ctx, false)
	if err != nil {
		return err
	}
	var running []store.Running
	for _, w := range workers {
		if w.ID == id {
			running = w.Running
		}
	}
	for i := range running {
		if r := &running[i]; r.Percent >= 0 {
			r.Percent, r.ETA = math.Mod(r.Percent+0.7, 99), max(r.ETA-1, 1) // wraps around in a slow test
		}
	}
	_, err = engine.New(st.DB(), st.Graph()).Heartbeat(ctx, engine.HeartbeatRequest{
		Worker: id, Session: session, Running: running,
	})
	return err
}
