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
// with the previous stages. $12 is how many live workers the principal may have; 0: any number.
const registerSQL = `
/* register worker */
with shape as (
  select from cuelight_schema where pipeline = $1 and shape = $8 for key share
), own as (
  select count(*) as n
    from (select from workers
           where pipeline = $1 and principal = $10 and stopped_at is null and lost_at is null limit $12) as live
), registered as (
  insert into workers (pipeline, host, pid, version, capabilities, lease, process_identity, name, principal, metadata,
                       registered_in)
  select $1, $2, $3, $4, coalesce($5::text::jsonb, '{}'), make_interval(secs => $6), $7, $9, $10,
         coalesce($11::text::jsonb, '{}'), cuelight_database_id()
    from shape, own
   where $12 = 0 or n < $12
  returning id
)
select (select id from registered), exists (select from shape)`

const workerStartedSQL = `
/* record that a worker started */
insert into {{.Outbox}} (type, worker_id, data)
select 'worker_started', id, jsonb_build_object('name', name, 'host', host, 'pid', pid, 'version', version) from workers
  where id = $1`

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
	err := e.db.QueryRow(ctx, registerSQL, e.graph.Name(), w.Host, w.PID, w.Version, jsonText(w.Capabilities),
		w.Lease.Seconds(), w.ProcessIdentity, e.graph.String(), w.Name, w.Principal, jsonText(w.Metadata), most,
	).Scan(&registered, &hasShape)
	state, constraint := statement.State(err)
	switch {
	case err == nil && !hasShape:
		err = store.ErrSchemaShape
	case err == nil && registered == nil:
		err = store.ErrTooManyWorkers
	case constraint == "workers_metadata":
		err = fmt.Errorf("%w: its metadata are not a JSON object of up to 10 KiB", store.ErrInvalidWorker)
	case strings.HasPrefix(state, statement.ClassData):
		err = fmt.Errorf("%w: %w", store.ErrInvalidWorker, err)
	}
	if err != nil {
		return store.ID{}, e.explain("register worker", err)
	}
	id := *registered
	if err := e.send(ctx, id, func(batch *pgx.Batch) { batch.Queue(e.sql.workerStarted, id) }); err != nil {
		return store.ID{}, e.explain("register worker", errors.Join(err, e.deregister(ctx, deregisterSilentlySQL, id)))
	}
	return id, nil
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
update workers set session = 0, disconnected_at = clock_timestamp()
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
		batch.Queue(disconnectSQL, workers, silence.Seconds()).Exec(func(tag pgconn.CommandTag) error {
			found = tag.RowsAffected()
			return nil
		})
	})
	return found, err
}

const deregisterSQL = `
/* deregister worker */
with stopped as (
  update workers set stopped_at = now(), running = '[]' where id = $1 and stopped_at is null
  returning id, name, host, pid
)
insert into {{.Outbox}} (type, worker_id, data)
select 'worker_stopped', id, jsonb_build_object('name', name, 'host', host, 'pid', pid) from stopped`

const deregisterSilentlySQL = `
/* deregister worker without an event */
update workers set stopped_at = now(), running = '[]' where id = $1 and stopped_at is null`

// deregisterTimeout is how long DeregisterWorker waits for a lock on the outbox.
const deregisterTimeout = 3 * time.Second

// DeregisterWorker records that a worker stopped after it released its claims. Where the
// outbox is locked, it writes no event: claims that the worker could not report are
// released without counting an attempt only if its row says that it stopped.
func (e *Engine) DeregisterWorker(ctx context.Context, worker store.ID) error {
	within, cancel := context.WithTimeout(ctx, deregisterTimeout)
	defer cancel()
	err := e.deregister(within, e.sql.deregister, worker)
	if err != nil && ctx.Err() == nil && (errors.Is(err, store.ErrLocked) || within.Err() != nil) {
		err = e.deregister(ctx, deregisterSilentlySQL, worker)
	}
	return err
}

func (e *Engine) deregister(ctx context.Context, sql string, worker store.ID) error {
	return e.explain("deregister worker", e.send(ctx, worker, func(batch *pgx.Batch) { batch.Queue(sql, worker) }))
}

const expireExitedWorkersSQL = `
/* expire workers whose processes ended */
with lost as (
  update workers set lost_at = now(), running = '[]'
   where id in (select id from workers
                 where id = any($1::uuid[]) and stopped_at is null and lost_at is null
                   for no key update skip locked)
  returning id, name, host, pid
), recorded as (` + workerLostSQL + `)
select id from lost`

const workerLostSQL = `
  insert into {{.Outbox}} (type, worker_id, data)
  select 'worker_lost', id, jsonb_build_object('name', name, 'host', host, 'pid', pid) from lost
`

// ExpireWorkers marks workers as lost whose processes have certainly ended, whatever their
// leases say. It returns those that were not lost before.
func (e *Engine) ExpireWorkers(ctx context.Context, workers []store.ID) (lost []store.ID, err error) {
	if len(workers) == 0 {
		return nil, nil
	}
	// The transaction has the name of one of them, so that the sweep can end it, too.
	err = e.send(ctx, workers[0], func(batch *pgx.Batch) {
		batch.Queue(e.sql.expireExitedWorkers, workers).Query(collect(&lost, pgx.RowTo[store.ID]))
	})
	return lost, e.explain("expire workers", err)
}

const limitsSQL = `
/* limits of a transaction */
select {{.TransactionLimits "$1" "$2::uuid"}}`

// send sends a worker's batch, with the limits of its transaction. The worker is zero for
// reads that lock nothing.
func (e *Engine) send(ctx context.Context, worker store.ID, queue func(*pgx.Batch)) error {
	var name *store.ID
	if !worker.IsZero() {
		name = &worker
	}
	var batch pgx.Batch
	batch.Queue(e.sql.limits, fmt.Sprintf("%dms", lockWait(ctx)), name)
	queue(&batch)
	return e.db.SendBatch(ctx, &batch).Close()
}

// collect returns a reader of rows for [pgx.QueuedQuery.Query].
func collect[T any](into *[]T, row pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, row)
		return err
	}
}
