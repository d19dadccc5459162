package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// remoteHeartbeatSQL renews the leases of workers that have no session of their own. It skips
// rows that are locked; their workers count as registered. Only a request that came after the end
// of a worker's connection undoes that: it may be another coordinator's that saw the end.
const remoteHeartbeatSQL = `
/* heartbeat of remote workers */
with progress as (
  insert into {outbox} (type, worker_id, data)
  select 'progress', id, data::jsonb from unnest($1::uuid[], $4::text[]) as p (id, data) where data is not null
), renewed as (
  update {workers} w
     set heartbeat_at = least(clock_timestamp(),
                              greatest(w.heartbeat_at, clock_timestamp() - make_interval(secs => r.silence))),
         session = case when w.disconnected_at >= clock_timestamp() - make_interval(secs => r.silence)
                        then w.session end,
         running = coalesce(r.running::jsonb, w.running)
    from unnest($1::uuid[], $2::text[], $3::float8[]) as r (id, running, silence)
   where w.id = r.id
     and w.id in (select id from {workers}
                   where id = any($1::uuid[]) and stopped_at is null and lost_at is null
                     for no key update skip locked)
)
select id, drain_at is not null from {workers}
 where id = any($1::uuid[]) and stopped_at is null and lost_at is null`

// RemoteWorker is a worker without a database connection, for [Engine.HeartbeatRemote].
type RemoteWorker struct {
	Worker store.ID
	// Silence is how long ago its last request ended; 0: one is open.
	Silence time.Duration
	// Running replaces what is stored; nil leaves it. Progressed is for the events.
	Running, Progressed []store.Running
}

// RemoteHeartbeat is what a coordinator says about the workers that it heard from.
type RemoteHeartbeat struct {
	Workers []RemoteWorker
	Claims  []Claim // of all of them, to check
}

// RemoteHeartbeatResult is the database's answer.
type RemoteHeartbeatResult struct {
	// Draining has the registered workers. A worker that is not in it is unknown, stopped or lost.
	Draining   map[store.ID]bool
	LostClaims []LostClaim
	Pauses     []store.Pause
}

// HeartbeatRemote renews the leases of all workers of a coordinator in one transaction. These
// workers have no session in the database: only their leases count, until
// [Engine.DisconnectWorker].
func (e *Engine) HeartbeatRemote(ctx context.Context, in RemoteHeartbeat) (RemoteHeartbeatResult, error) {
	n := len(in.Workers)
	ids, running, progressed, silence := make([]store.ID, n), make([]*string, n), make([]*string, n), make([]float64, n)
	for i, w := range in.Workers {
		ids[i], silence[i] = w.Worker, w.Silence.Seconds()
		if text, ok := marshalRunning(w.Running); ok {
			running[i] = &text
		} else if w.Running != nil {
			none := "[]"
			running[i] = &none
		}
		if text, ok := marshalRunning(w.Progressed); ok {
			progressed[i] = &text
		}
	}
	out := RemoteHeartbeatResult{Draining: make(map[store.ID]bool, len(ids))}
	err := e.send(ctx, store.ID{}, func(batch *pgx.Batch) {
		batch.Queue(e.sql.remoteHeartbeat, ids, running, silence, progressed).Query(func(rows pgx.Rows) error {
			var id store.ID
			var draining bool
			_, err := pgx.ForEachRow(rows, []any{&id, &draining}, func() error {
				out.Draining[id] = draining
				return nil
			})
			return err
		})
		if len(in.Claims) > 0 {
			e.queueFindLost(batch, in.Claims, &out.LostClaims)
		}
	})
	if err == nil {
		out.Pauses, err = store.New(e.db, e.graph).Pauses(ctx)
	}
	return out, e.explain("heartbeat of remote workers", err)
}
