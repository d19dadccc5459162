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
with renewed as (
  update workers w
     set heartbeat_at = least(clock_timestamp(),
                              greatest(w.heartbeat_at, clock_timestamp() - make_interval(secs => r.silence))),
         session = case when w.disconnected_at >= clock_timestamp() - make_interval(secs => r.silence) then w.session end,
         running = coalesce(r.running::jsonb, w.running)
    from unnest($1::uuid[], $2::text[], $3::float8[]) as r (id, running, silence)
   where w.id = r.id
     and w.id in (select id from workers
                   where id = any($1::uuid[]) and stopped_at is null and lost_at is null
                     for no key update skip locked)
)
select id, drain_at is not null from workers
 where id = any($1::uuid[]) and stopped_at is null and lost_at is null`

const asynchronousCommitSQL = `
/* commit asynchronously: the next heartbeat replaces one that a crash lost */
select set_config('synchronous_commit', 'off', true)`

const pausesOfPipelineSQL = `
/* read pauses */
select stage, host from cuelight_pauses where pipeline = $1`

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
	Pauses     []store.Pause // with Stage and Host alone
}

// HeartbeatRemote renews the leases of all workers of a coordinator in one transaction. These
// workers have no session in the database: only their leases count, until
// [Engine.DisconnectWorker].
func (e *Engine) HeartbeatRemote(ctx context.Context, in RemoteHeartbeat) (RemoteHeartbeatResult, error) {
	ids, running, silence := make([]store.ID, len(in.Workers)), make([]*string, len(in.Workers)), make([]float64, len(in.Workers))
	for i, w := range in.Workers {
		ids[i], silence[i] = w.Worker, w.Silence.Seconds()
		if text, ok := marshalRunning(w.Running); ok {
			running[i] = &text
		} else if w.Running != nil {
			none := "[]"
			running[i] = &none
		}
	}
	out := RemoteHeartbeatResult{Draining: make(map[store.ID]bool, len(ids))}
	err := e.send(ctx, store.ID{}, func(batch *pgx.Batch) {
		batch.Queue(asynchronousCommitSQL)
		batch.Queue(remoteHeartbeatSQL, ids, running, silence).Query(func(rows pgx.Rows) error {
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
		batch.Queue(pausesOfPipelineSQL, e.graph.Name()).Query(collect(&out.Pauses,
			func(row pgx.CollectableRow) (p store.Pause, err error) {
				err = row.Scan(&p.Stage, &p.Host)
				return p, err
			}))
		for _, w := range in.Workers {
			if text, ok := marshalRunning(w.Progressed); ok {
				batch.Queue(e.sql.progress, w.Worker, text)
			}
		}
	})
	return out, e.explain("heartbeat of remote workers", err)
}

const stopRegisteredSQL = `
/* stop workers registered by a principal */
with stopped as (
  update workers set stopped_at = now(), running = '[]'
   where principal = $1 and stopped_at is null and lost_at is null
  returning id, pipeline, name, host, pid
), recorded as (
  insert into {{.Outbox}} (type, worker_id, data)
  select 'worker_stopped', id, jsonb_build_object('name', name, 'host', host, 'pid', pid) from stopped where pipeline = $2
)
select id from stopped`

// StopRegistered stops all workers that a principal has registered, which may send nothing any
// more, and releases their claims, which says why. It returns the workers, and how many claims it
// released. The next sweep releases those of other pipelines, and those whose rows are locked. Call it
// in a transaction.
func (e *Engine) StopRegistered(ctx context.Context, principal, why string) (stopped []store.ID, released int, err error) {
	if principal == "" {
		return nil, 0, nil // local workers have none
	}
	err = e.send(ctx, store.ID{}, func(batch *pgx.Batch) {
		batch.Queue(e.sql.stopRegistered, principal, e.graph.Name()).Query(collect(&stopped, pgx.RowTo[store.ID]))
	})
	if err != nil || len(stopped) == 0 {
		return nil, 0, e.explain("stop workers of a principal", err)
	}
	held, err := e.findHeld(ctx, stopped, store.ID{})
	var reports []Report
	for _, h := range held {
		reports = append(reports, Report{
			Task: h.Task, Stage: h.Stage, Part: h.Part, Token: h.Token, Outcome: Released, Class: "interrupted", Error: why,
		})
	}
	if err == nil && len(reports) > 0 {
		n := e.graph.Queues()
		var out ExchangeResult
		out, err = e.Exchange(ctx, ExchangeRequest{
			Worker: stopped[0], Reports: reports, FreeSlots: make([]int, n), ClaimFrom: make([]bool, n),
		})
		released = len(reports) - len(out.Locked) - len(out.Stale)
	}
	if err == nil {
		err = e.NotifyEvents(ctx)
	}
	return stopped, released, err
}
