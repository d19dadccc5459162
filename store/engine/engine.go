// Package engine is the database side of a dispatcher: it claims steps of tasks for a worker,
// records the outcomes of its attempts, and finds what lost workers left behind.
// In a program only package stages uses it, and internal/ops when it stops workers; programs
// that submit and read tasks use package store.
//
// A worker registers ([Engine.RegisterWorker]), sends heartbeats ([Engine.Heartbeat]),
// and exchanges reports for claims ([Engine.Exchange]). At intervals workers sweep
// ([Engine.Sweep]): they expire workers whose leases ran out, end their claims, and
// find steps that no notification announced.
//
// Every claim has a fencing token, and every write must match it. A report of a claim
// that was cancelled, expired or retried changes nothing and is returned as stale.
// No method holds a transaction open while a stage is working, and none waits for
// another worker's row locks.
//
// It does not run work, decide what to claim, or retry its own calls.
package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// Engine reads and writes the tables of one pipeline in one database for workers. Many goroutines may use it at once.
type Engine struct {
	db     store.DB
	graph  store.Graph
	stages []string
	sql    statements

	positions     positions
	reconcilePage reconcilePage
}

// statements are the SQL texts with the names of the pipeline's tables. Each stands next to the method that sends it.
type statements struct {
	settings, completeStages, completeParts, divide, fail, promote                string
	allow, claim, look, notify, recordPositions                                   string
	register, recordWorkers, heartbeat, checks, remoteHeartbeat, disconnect, stop string
	findClaims, findHeld                                                          string
	endTransactions, expireWorkers, findOrphans, age, reconcile                   string
}

// New returns the Engine of a pipeline. It does not use the database; [store.Store]'s Migrate creates the tables.
func New(db store.DB, g store.Graph) *Engine {
	s := g.SQL
	return &Engine{db: db, graph: g, stages: g.Stages(), sql: statements{
		settings: s(settingsSQL), completeStages: s(completeStagesSQL), completeParts: s(completePartsSQL),
		divide: s(divideSQL), fail: s(failSQL), promote: s(promoteSQL),
		allow: s(allowSQL), claim: s(claimSQL), look: s(lookSQL), notify: s(notifySQL), recordPositions: s(recordPositionsSQL),
		register: s(registerSQL), recordWorkers: s(recordWorkersSQL), heartbeat: s(heartbeatSQL), checks: s(checksSQL),
		remoteHeartbeat: s(remoteHeartbeatSQL),
		disconnect:      s(disconnectSQL), stop: s(stopSQL), findClaims: s(findClaimsSQL), findHeld: s(findHeldSQL),
		endTransactions: s(endTransactionsSQL), expireWorkers: s(expireWorkersSQL), findOrphans: s(findOrphansSQL),
		age: s(ageSQL), reconcile: s(reconcileSQL),
	}}
}

// Graph returns the pipeline's graph.
func (e *Engine) Graph() store.Graph { return e.graph }

func (e *Engine) explain(act string, err error) error { return statement.Wrap(e.db, act, err) }

// settingsSQL sets up a worker's transaction. Plans are made once per connection, and must use the indexes whatever the
// tables' statistics were at that moment. The role's timeouts do not apply: an exchange has its own, shorter than the
// worker's deadline. The name of the session says which worker it is of, so that a sweep can end a transaction that a
// stopped process left open.
//
// A transaction that only claims commits asynchronously: a claim lost in a crash of the server costs a repeated attempt
// and never a result.
const settingsSQL = `
/* settings of a worker's transaction */
select set_config('application_name', coalesce('cuelight ' || $1::uuid, current_setting('application_name')), true),
       set_config('lock_timeout', $2::integer || 'ms', true), set_config('statement_timeout', '25s', true),
       case when current_setting('server_version_num')::integer >= 170000
            then set_config('transaction_timeout', '30s', true) end,
       set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true), -- or a small wrong index is preferred to the one in the right order
       set_config('cuelight.exchange', $3, true),
       case when $3 = 'claims' then set_config('synchronous_commit', 'off', true) end,
       case when $4 then set_config('cuelight.limit_lock',
                                    pg_try_advisory_xact_lock(hashtext('cuelight limits {tasks}'))::text, true) end`

// Values of cuelight.exchange: the following statements report how attempts ended, or they claim. See triggers.sql.
const reporting, claiming = "reports", "claims"

// send sends a worker's batch, with the settings of its transaction. The worker is zero for reads that lock nothing.
func (e *Engine) send(ctx context.Context, worker store.ID, queue func(*pgx.Batch)) error {
	var batch pgx.Batch
	batch.Queue(e.sql.settings, worker, lockWait(ctx), "", false)
	queue(&batch)
	return e.db.SendBatch(ctx, &batch).Close()
}

// lockWait is how long a statement may wait for a lock, in milliseconds. It is shorter than
// ctx allows, so that the server ends the wait: a cancelled ctx would close the connection.
func lockWait(ctx context.Context) int32 {
	within := 3 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline))
	}
	return int32(max(within*2/3, time.Millisecond).Milliseconds())
}

// collect returns a reader of rows for [pgx.QueuedQuery.Query].
func collect[T any](into *[]T, row pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.AppendRows(*into, rows, row)
		return err
	}
}

// secondsToDuration is -1 for null.
func secondsToDuration(seconds *float64) time.Duration {
	if seconds == nil {
		return -1
	}
	return max(time.Duration(*seconds*float64(time.Second)), 0)
}
