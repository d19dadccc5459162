// Package engine is the database side of a dispatcher: it claims tasks for a worker,
// records the outcomes of its attempts, and finds what lost workers left behind.
// Package stages is its only user in a program; programs that submit and read tasks
// use package store.
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
	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// Engine reads and writes the tables of one pipeline in one database for workers. It
// has no state of its own; many goroutines may use it at once.
type Engine struct {
	db     store.DB
	graph  store.Graph
	stages []string
	sql    statements
}

// New returns the Engine of a pipeline. It does not use the database; [store.Store]'s
// Migrate creates the tables.
func New(db store.DB, g store.Graph) *Engine {
	return &Engine{db: db, graph: g, stages: g.Stages(), sql: newStatements(g)}
}

// Graph returns the pipeline's graph.
func (e *Engine) Graph() store.Graph { return e.graph }

// statements are the SQL texts of one pipeline, filled from the templates next to
// the methods that send them. Slices are by stage.
type statements struct {
	complete, completeRanked                     string
	claim, claimAfter, claimContinued, claimAged []string
	aged, promote, ready, fail, expireClaims     []string
	findHeld, findLost, findRecorded             string
	survey, expireWorkers, expireDeadWorkers     string
	workerStarted, deregister                    string
	exchangeSettings, limits, workerNews         string
	endTransactions, progress, pruneEvents       string
}

// claimVariant selects one of the forms of claimSQL.
type claimVariant struct{ After, Continued, Aged bool }

func newStatements(g store.Graph) statements {
	all := func(text string) string { return g.SQL(text, nil) }
	each := func(text string, with any) (texts []string) {
		for i := range g.Stages() {
			texts = append(texts, g.StageSQL(text, i, with))
		}
		return texts
	}
	return statements{
		complete:       g.SQL(completeSQL, completeVariant{}),
		completeRanked: g.SQL(completeSQL, completeVariant{Ranked: true}),
		claim:          each(claimSQL, claimVariant{}),
		claimAfter:     each(claimSQL, claimVariant{After: true}),
		claimContinued: each(claimSQL, claimVariant{Continued: true}),
		claimAged:      each(claimSQL, claimVariant{Aged: true}),
		aged:           each(agedSQL, nil),
		promote:        each(promoteSQL, nil),
		ready:          each(readySQL, nil),
		fail:           each(failSQL, nil),
		expireClaims:   each(expireClaimsSQL, nil),
		findHeld:       all(findHeldSQL), findLost: all(findLostSQL), findRecorded: all(findRecordedSQL),
		survey: all(surveySQL), expireWorkers: all(expireWorkersSQL), expireDeadWorkers: all(expireDeadWorkersSQL),
		workerStarted: all(workerStartedSQL), deregister: all(deregisterSQL),
		exchangeSettings: all(exchangeSettingsSQL), limits: all(limitsSQL), workerNews: all(workerNewsSQL),
		endTransactions: all(endTransactionsSQL), progress: all(progressSQL), pruneEvents: all(pruneEventsSQL),
	}
}

func (e *Engine) explain(act string, err error) error { return statement.Wrap(e.db, act, err) }
