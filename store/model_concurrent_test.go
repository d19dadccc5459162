package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// Many clients make the calls of the model tests at the same time. The result of each call
// is not known, but the invariants must hold at any time and at the end.
func TestStore_KeepsItsInvariantsUnderConcurrency(t *testing.T) {
	t.Parallel()
	runRounds(t, func(t *testing.T, g store.Graph, seed int64) {
		pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
		c := &concurrentRun{
			tables: newTables(pool, g), t: t, pool: pool, noRetries: seed%2 == 0,
			requests: make(map[string]store.ID), rolledBack: make(map[string]bool), deleted: make(map[store.ID]bool),
			accepted: make(map[store.ID]engine.Outcome), tokens: make(map[store.ID]bool),
		}
		var clients, checks sync.WaitGroup
		checking, stop := context.WithCancel(t.Context())
		checks.Go(func() { c.checkInvariants(checking) })
		for i := range modelWorkers {
			clients.Go(func() {
				m := c.newClient(rand.New(rand.NewPCG(uint64(seed), uint64(i))))
				for n := 0; n < *stepsFlag/2 && !t.Failed(); n++ {
					m.step()
				}
			})
		}
		clients.Wait()
		stop()
		checks.Wait()
		c.finish()
		c.compareAccepted()
		c.checkFinalInvariants()
	})
}

// concurrentRun is what the clients of one round share.
type concurrentRun struct {
	tables
	t         *testing.T
	pool      *pgxpool.Pool
	noRetries bool // no client retries a task

	mu         sync.Mutex
	requests   map[string]store.ID // of acknowledged submissions
	rolledBack map[string]bool     // requests of submissions that were rolled back
	tasks      []store.ID
	deleted    map[store.ID]bool // tasks that were deleted, or may have been
	workers    []store.ID
	claims     []engine.Claim              // all claims ever made
	tokens     map[store.ID]bool           // and their tokens
	accepted   map[store.ID]engine.Outcome // accepted reports, by token
}

// options returns what the invariants may assume. Deleted tasks are left out.
func (c *concurrentRun) options(settled bool) invariant.Options {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := invariant.Options{
		Settled: settled, NoRetries: c.noRetries, MaxOrphanTime: modelLease,
		MaxAttempts: slices.Repeat([]int{modelAttempts}, len(c.Graph().Stages())),
	}
	for request, task := range c.requests {
		if !c.deleted[task] {
			o.Committed = append(o.Committed, request)
		}
	}
	for request := range c.rolledBack {
		o.RolledBack = append(o.RolledBack, request)
	}
	return o
}

// checkInvariants checks the invariants until ctx is done.
func (c *concurrentRun) checkInvariants(ctx context.Context) {
	for ctx.Err() == nil && !c.t.Failed() {
		o := c.options(false)
		o.Committed = nil // a task may be deleted before the check
		found, err := invariant.Check(ctx, c.pool, c.Graph(), o)
		if err != nil && ctx.Err() == nil {
			c.t.Error(err)
		}
		for _, v := range found {
			c.t.Errorf("during the run: %s", v)
		}
	}
}

// finish completes all remaining tasks with one worker.
func (c *concurrentRun) finish() {
	ctx := c.t.Context()
	if _, err := c.ExpireWorkers(ctx, c.workers); err != nil {
		c.t.Fatal(err)
	}
	m := c.newClient(rand.New(rand.NewPCG(0, 0)))
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := modelSweep(ctx, c.Engine, m.worker, &engine.OutageCredit{}); err != nil {
			c.t.Fatal(err)
		}
		m.exchange(func(cl engine.Claim) engine.Report { return completed(cl) })
		tasks, err := c.List(ctx, store.ListQuery{Filter: store.Filter{Limit: 1e6}})
		if err != nil {
			c.t.Fatal(err)
		}
		if !slices.ContainsFunc(tasks, func(t store.Task) bool { return !t.IsFinished(c.Graph()) }) {
			return
		}
		if c.t.Failed() || time.Now().After(deadline) {
			c.t.Fatal("tasks are not finished after a minute")
		}
	}
}

// compareAccepted checks that the history has exactly the accepted reports of completed,
// divided and failed attempts.
func (c *concurrentRun) compareAccepted() {
	rows, err := c.pool.Query(c.t.Context(),
		"select token, outcome::text from "+modelPrefix(c.Graph())+"attempts where outcome in ('completed', 'divided', 'failed')")
	if err != nil {
		c.t.Fatal(err)
	}
	history := make(map[store.ID]engine.Outcome)
	var token store.ID
	var outcome engine.Outcome
	_, err = pgx.ForEachRow(rows, []any{&token, &outcome}, func() error { history[token] = outcome; return nil })
	if err != nil {
		c.t.Fatal(err)
	}
	for _, cl := range c.claims {
		reported, recorded := c.accepted[cl.Token], history[cl.Token]
		if reported == engine.Released || c.deleted[cl.Task] && recorded == "" {
			reported = ""
		}
		if reported != recorded {
			c.t.Errorf("claim %s of task %s: the report %q was accepted, and the history has %q", cl.Token,
				cl.Task, reported, recorded)
		}
		delete(history, cl.Token)
	}
	if len(history) > 0 {
		c.t.Errorf("the history has claims that no client held: %v", history)
	}
}

func (c *concurrentRun) checkFinalInvariants() {
	found, err := invariant.Check(c.t.Context(), c.pool, c.Graph(), c.options(true))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, v := range found {
		c.t.Error(v)
	}
}

// concurrentClient is one client of a concurrentRun.
type concurrentClient struct {
	*concurrentRun
	rng    *rand.Rand
	worker store.ID
	held   []engine.Claim
	count  int
}

func (c *concurrentRun) newClient(rng *rand.Rand) *concurrentClient {
	m := &concurrentClient{concurrentRun: c, rng: rng}
	m.register()
	return m
}

// register registers a new worker, without claims.
func (m *concurrentClient) register() {
	id, err := modelRegister(m.t.Context(), m.Engine)
	m.check(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worker, m.held = id, nil
	m.workers = append(m.workers, id)
}

// check fails the test for errors that are not expected of concurrent calls. Expected are
// deadlocks, which are rolled back, and tasks that another client deleted.
func (m *concurrentClient) check(err error) bool {
	m.t.Helper()
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return true
	case store.IsRetryable(err), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrOverridden):
	case errors.As(err, &pg) && pg.Code == "23503": // a task that overrides others cannot be deleted
	default:
		m.t.Error(err)
	}
	return false
}

func (m *concurrentClient) chance(percent int) bool { return m.rng.IntN(100) < percent }

// recentOf returns one of the latest shared values.
func recentOf[T any](m *concurrentClient, of *[]T) (one T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(*of); n > 0 {
		one = (*of)[max(0, n-1-m.rng.IntN(min(n, 30)))]
	}
	return one
}

func (m *concurrentClient) newSubmission() store.Submission {
	m.count++
	return store.Submission{
		Source: "a", RequestID: fmt.Sprintf("%s-%d", m.worker, m.count), Priority: int16(m.rng.IntN(3)),
	}
}

func (m *concurrentClient) recordSubmitted(r store.Receipt, sub store.Submission) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[sub.RequestID] = r.ID
	m.tasks = append(m.tasks, r.ID)
}
