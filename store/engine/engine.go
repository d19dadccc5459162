// Package engine is the database side of a dispatcher: it claims tasks for a worker,
// records the outcomes of its attempts, and finds what lost workers left behind.
// In a program only package stages uses it, and internal/ops when it stops workers; programs
// that submit and read tasks use package store.
//
// A worker registers ([Engine.RegisterWorker]), sends heartbeats ([Engine.Heartbeat]),
// and exchanges reports for claims ([Engine.Exchange]). At intervals one worker sweeps
// ([Engine.Sweep]): it expires workers whose leases ran out, releases their claims, and
// finds ready tasks that no notification announced.
//
// Every claim has a fencing token, and every write must match it. A report of a claim
// that was cancelled, expired or retried changes nothing and is returned as stale.
// No method holds a transaction open while a stage is working, and none waits for
// another transaction's row locks.
//
// It does not run work, decide what to claim, or retry its own calls.
package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// Engine reads and writes the tables of one pipeline in one database for workers. It remembers whose turn it is where tasks of
// several users are ready, and nothing else; many goroutines may use it at once.
type Engine struct {
	db       store.DB
	graph    store.Graph
	stages   []string
	sql      statements
	forms    []completeForm // of sql.complete
	group    []int          // see completeForms
	disjoint bool           // see completeForms
	fairness *fairness
}

// Graph returns the pipeline's graph.
func (e *Engine) Graph() store.Graph { return e.graph }

// statements are the SQL texts of one pipeline, filled from the templates next to
// the methods that send them. Other slices are by stage; claimAged, aged, promote, ready, fail and expireClaims by queue.
type statements struct {
	complete                                      []string // by form
	claim, claimAfter, claimContinued, claimAged  []string
	claimFair, claimFairAfter, claimLimited       []string
	lockLimit, notifyLimited                      string
	aged, promote, ready, fail, expireClaims      []string
	claimParts, divide, completeParts             []string // by stage that divides
	findLostParts                                 string
	findHeld, findLost, findRecorded              string
	sweepScan, expireWorkers, expireExitedWorkers string
	workerStarted, deregister, stopRegistered     string
	exchangeSettings, limits, workerChecks        string
	endTransactions, progress, pruneEvents        string
}

func (e *Engine) explain(act string, err error) error { return statement.Wrap(e.db, act, err) }

// exchangeSettingsSQL sets up a worker's transaction. Plans are made once per
// connection and must use the indexes whatever the tables' statistics were at that
// moment. The role's statement_timeout does not apply: an exchange has its own, shorter
// than the worker's deadline. The triggers read cuelight.origin.
//
// A transaction that only claims commits asynchronously: a claim lost in a crash of the
// server costs a repeated attempt and never a result.
const exchangeSettingsSQL = `
/* settings of an exchange */
select set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('statement_timeout', '25s', true),
       set_config('cuelight.origin', $2, true),
       {{.TransactionLimits "$4" "$3::uuid"}},
       case when $1 then set_config('synchronous_commit', 'off', true) end`

const originSQL = `
/* set origin */
select set_config('cuelight.origin', $1, true)`

// Values of cuelight.origin: an exchange records in its own statements which stages it
// starts and completes, and the triggers record the rest; a sweep; or a statement that
// records everything itself, for which the triggers do not run.
const originExchange, originSweep, originRecorded = "exchange", "sweep", "recorded"

// queueSettings starts the batch of a worker's transaction.
func (e *Engine) queueSettings(ctx context.Context, batch *pgx.Batch, async bool, origin string, worker store.ID) {
	batch.Queue(e.sql.exchangeSettings, async, origin, worker, fmt.Sprintf("%dms", lockWait(ctx)))
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
