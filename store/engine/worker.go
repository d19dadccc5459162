package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// registerSQL waits for a Migrate that adds stages, and then inserts nothing for a worker
// with the previous stages. $10 is how many live workers the principal may have; 0: any number.
const registerSQL = `
/* register worker */
with shape as (
  select from {pipeline} where stages = $1 for key share
), own as (
  select count(*) as n
    from (select from {workers} where principal = $9 and stopped_at is null and lost_at is null limit $10) as live
), registered as (
  insert into {workers} (host, pid, version, capabilities, lease, process_identity, name, principal, metadata,
       registered_in)
  select $2, $3, $4, coalesce($5::text::jsonb, '{}'), make_interval(secs => $6), $7, $8, $9,
         coalesce($11::text::jsonb, '{}'),
         cuelight_{name}_database()
    from shape, own
   where $10 = 0 or n < $10
  returning id
)
select (select id from registered), exists (select from shape)`

// recordWorkersSQL records that workers started, or that those have stopped that did in this transaction. It is a statement of
// its own, because planning one that writes to the outbox waits while that is locked.
const recordWorkersSQL = `
/* record workers */
insert into {outbox} (type, worker_id, data)
select $3, id, jsonb_strip_nulls(jsonb_build_object('name', name, 'host', host, 'pid', pid,
                                                    'version', case $3 when 'worker_started' then version end))
  from {workers}
 where (id = $1 or principal = $2) and ($3 = 'worker_started' or stopped_at = now())`

// RegisterWorker adds a worker; only a registered worker may claim. It returns
// [store.ErrSchemaShape] if the tables are for other stages, and [store.ErrInvalidWorker]
// for a name, capabilities or metadata that cannot be stored. Every start of a process
// registers a new worker, so that a restarted host is not taken for the lost one.
//
// The event is written in a second transaction, which has the worker's name: if this
// process stops in the middle of it, the sweep can end it.
func (e *Engine) RegisterWorker(ctx context.Context, w store.Worker) (store.ID, error) {
	return e.RegisterWorkerWithin(ctx, w, 0)
}

// RegisterWorkerWithin is [Engine.RegisterWorker] unless the principal has so many live workers; then it returns
// [store.ErrTooManyWorkers]. Calls at the same moment may exceed the limit. 0 is no limit.
func (e *Engine) RegisterWorkerWithin(ctx context.Context, w store.Worker, most int) (store.ID, error) {
	if w.Lease <= 0 {
		w.Lease = store.DefaultLease
	}
	if w.Name == "" {
		w.Name = store.WorkerNameOf(w.Host)
	}
	if err := store.CheckWorkerName(w.Name); err != nil {
		return store.ID{}, e.explain("register worker", err)
	}
	var registered *store.ID
	var hasShape bool
	err := e.db.QueryRow(ctx, e.sql.register, e.graph.String(), w.Host, w.PID, w.Version, jsonText(w.Capabilities),
		w.Lease.Seconds(), w.ProcessIdentity, w.Name, w.Principal, most, jsonText(w.Metadata),
	).Scan(&registered, &hasShape)
	state, constraint := statement.State(err)
	switch {
	case err == nil && !hasShape:
		err = store.ErrSchemaShape
	case err == nil && registered == nil:
		err = store.ErrTooManyWorkers
	case constraint == e.graph.TablePrefix()+"workers_metadata":
		err = fmt.Errorf("%w: its metadata are not a JSON object of up to 10 KiB", store.ErrInvalidWorker)
	case strings.HasPrefix(state, statement.ClassData):
		err = fmt.Errorf("%w: %w", store.ErrInvalidWorker, err)
	}
	if err == nil {
		err = e.send(ctx, *registered, func(batch *pgx.Batch) { batch.Queue(e.sql.recordWorkers, registered, nil, "worker_started") })
	}
	if err != nil {
		return store.ID{}, e.explain("register worker", err)
	}
	return *registered, nil
}

// jsonText is a parameter for JSON, null where there is none.
func jsonText(raw json.RawMessage) *string {
	if len(raw) == 0 {
		return nil
	}
	text := string(raw)
	return &text
}

const disconnectSQL = `
/* disconnect worker */
update {workers} set session = 0, disconnected_at = clock_timestamp()
 where id = any($1::uuid[]) and stopped_at is null and lost_at is null
   and ($2::float8 = 0 or heartbeat_at < clock_timestamp() - make_interval(secs => $2))`

// DisconnectWorker says that a worker without a session of its own has lost its contact: it
// is expired after [store.DisconnectGrace] without a heartbeat, and not only after its
// lease. [Engine.HeartbeatRemote] undoes it. It returns [store.ErrWorkerUnknown].
func (e *Engine) DisconnectWorker(ctx context.Context, worker store.ID) error {
	found, err := e.disconnect(ctx, []store.ID{worker}, 0)
	if err == nil && found == 0 {
		err = store.ErrWorkerUnknown
	}
	return e.explain("disconnect worker", err)
}

// DisconnectSilent does the same to those of the workers that had no heartbeat for some time.
func (e *Engine) DisconnectSilent(ctx context.Context, workers []store.ID, silence time.Duration) error {
	if len(workers) == 0 {
		return nil
	}
	_, err := e.disconnect(ctx, workers, silence)
	return e.explain("disconnect silent workers", err)
}

func (e *Engine) disconnect(ctx context.Context, workers []store.ID, silence time.Duration) (found int64, err error) {
	err = e.send(ctx, workers[0], func(batch *pgx.Batch) {
		batch.Queue(e.sql.disconnect, workers, silence.Seconds()).Exec(func(tag pgconn.CommandTag) error {
			found = tag.RowsAffected()
			return nil
		})
	})
	return found, err
}

// stopSQL stops a worker, or all that a principal has registered.
const stopSQL = `
/* stop workers */
update {workers} set stopped_at = now(), running = '[]'
 where (id = $1 or principal = $2) and stopped_at is null and lost_at is null
returning id`

// deregisterTimeout is how long DeregisterWorker waits for a lock on the outbox.
const deregisterTimeout = 3 * time.Second

// DeregisterWorker records that a worker stopped after it released its claims. Where the
// outbox is locked, it writes no event: claims that the worker could not report are
// released without counting an attempt only if its row says that it stopped.
func (e *Engine) DeregisterWorker(ctx context.Context, worker store.ID) error {
	within, cancel := context.WithTimeout(ctx, deregisterTimeout)
	defer cancel()
	_, err := e.stop(within, worker, nil, true)
	if err != nil && ctx.Err() == nil && (errors.Is(err, store.ErrLocked) || within.Err() != nil) {
		_, err = e.stop(ctx, worker, nil, false)
	}
	return e.explain("deregister worker", err)
}

func (e *Engine) stop(ctx context.Context, worker store.ID, principal *string, record bool) (stopped []store.ID, err error) {
	err = e.send(ctx, worker, func(batch *pgx.Batch) {
		batch.Queue(e.sql.stop, worker, principal).Query(collect(&stopped, pgx.RowTo[store.ID]))
		if record {
			batch.Queue(e.sql.recordWorkers, worker, principal, "worker_stopped")
		}
	})
	return stopped, err
}

// StopRegistered stops all workers that a principal has registered, which may send nothing any
// more, and releases their claims, which says why. It returns the workers, and how many claims it
// released. The next sweep releases those whose rows are locked. Call it in a transaction.
func (e *Engine) StopRegistered(ctx context.Context, principal, why string) (stopped []store.ID, released int, err error) {
	if principal == "" {
		return nil, 0, nil // local workers have none
	}
	if stopped, err = e.stop(ctx, store.ID{}, &principal, true); err != nil || len(stopped) == 0 {
		return nil, 0, e.explain("stop workers of a principal", err)
	}
	held, err := e.FindHeldClaims(ctx, stopped...)
	var reports []Report
	for _, h := range held {
		reports = append(reports, Report{
			Task: h.Task, Stage: h.Stage, Part: h.Part, Token: h.Token, Outcome: Released, Class: "interrupted", Error: why,
		})
	}
	if err == nil && len(reports) > 0 {
		var out ExchangeResult
		out, err = e.Exchange(ctx, ExchangeRequest{Worker: stopped[0], Reports: reports})
		released = len(reports) - len(out.Locked) - len(out.Stale)
	}
	if err == nil {
		err = store.New(e.db, e.graph).NotifyEvents(ctx)
	}
	return stopped, released, err
}
