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

// The moves of the model, made by many at once. Nobody can say what must come
// of each, but what is promised must hold all the same, at any time and in the
// end.
func TestManyAtOnceBreakNoPromise(t *testing.T) {
	t.Parallel()
	rounds(t, func(t *testing.T, g store.Graph, seed int64) {
		pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
		c := &crowd{
			tables: newTables(pool, g), t: t, pool: pool, careful: seed%2 == 0,
			requests: make(map[string]store.ID), undone: make(map[string]bool), deleted: make(map[store.ID]bool),
			accepted: make(map[store.ID]engine.Outcome), tokens: make(map[store.ID]bool),
		}
		var members, watchers sync.WaitGroup
		watched, stop := context.WithCancel(t.Context())
		watchers.Go(func() { c.watch(watched) })
		for i := range modelWorkers {
			members.Go(func() {
				m := c.member(rand.New(rand.NewPCG(uint64(seed), uint64(i))))
				for n := 0; n < *stepsFlag/2 && !t.Failed(); n++ {
					m.move()
				}
			})
		}
		members.Wait()
		stop()
		watchers.Wait()
		c.finish()
		c.compareAccepted()
		c.checkSettled()
	})
}

// crowd is what its members know of each other.
type crowd struct {
	tables
	t       *testing.T
	pool    *pgxpool.Pool
	careful bool // no operator retries anything

	mu       sync.Mutex
	requests map[string]store.ID // of submissions that were acknowledged
	undone   map[string]bool     // of those that were rolled back
	tasks    []store.ID
	deleted  map[store.ID]bool // tasks that were deleted, or perhaps were
	workers  []store.ID
	claims   []engine.Claim              // every claim there ever was
	tokens   map[store.ID]bool           // and its token
	accepted map[store.ID]engine.Outcome // reports that were taken, by token
}

// options are what the rules may assume; what was deleted is not there.
func (c *crowd) options(settled bool) invariant.Options {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := invariant.Options{
		Settled: settled, NoRetries: c.careful, MaxOrphanTime: modelLease,
		MaxAttempts: slices.Repeat([]int{modelAttempts}, len(c.Graph().Stages())),
	}
	for request, task := range c.requests {
		if !c.deleted[task] {
			o.Committed = append(o.Committed, request)
		}
	}
	for request := range c.undone {
		o.RolledBack = append(o.RolledBack, request)
	}
	return o
}

// watch asks the rules all the time.
func (c *crowd) watch(ctx context.Context) {
	for ctx.Err() == nil && !c.t.Failed() {
		o := c.options(false)
		o.Committed = nil // a task may be deleted between the two
		found, err := invariant.Check(ctx, c.pool, c.Graph(), o)
		if err != nil && ctx.Err() == nil {
			c.t.Error(err)
		}
		for _, v := range found {
			c.t.Errorf("meanwhile, %s", v)
		}
	}
}

// finish lets one worker do all that is left.
func (c *crowd) finish() {
	ctx := c.t.Context()
	if _, err := c.ExpireWorkers(ctx, c.workers); err != nil {
		c.t.Fatal(err)
	}
	m := c.member(rand.New(rand.NewPCG(0, 0)))
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := modelSweep(ctx, c.Engine, m.worker, &engine.OutageCredit{}); err != nil {
			c.t.Fatal(err)
		}
		m.turn(func(cl engine.Claim) engine.Report { return completed(cl) })
		tasks, err := c.List(ctx, store.ListQuery{Filter: store.Filter{Limit: 1e6}})
		if err != nil {
			c.t.Fatal(err)
		}
		if !slices.ContainsFunc(tasks, func(t store.Task) bool { return !t.IsFinished(c.Graph()) }) {
			return
		}
		if c.t.Failed() || time.Now().After(deadline) {
			c.t.Fatal("there is no end to it")
		}
	}
}

// compareAccepted: what was reported and taken is in the history, and nothing
// else is that has to be reported to be there.
func (c *crowd) compareAccepted() {
	rows, err := c.pool.Query(c.t.Context(), "select token, outcome::text from "+modelPrefix(c.Graph())+"attempts where outcome in ('completed', 'failed')")
	if err != nil {
		c.t.Fatal(err)
	}
	history := make(map[store.ID]engine.Outcome)
	var token store.ID
	var outcome engine.Outcome
	if _, err := pgx.ForEachRow(rows, []any{&token, &outcome}, func() error { history[token] = outcome; return nil }); err != nil {
		c.t.Fatal(err)
	}
	for _, cl := range c.claims {
		had, has := c.accepted[cl.Token], history[cl.Token]
		if had == engine.Released || c.deleted[cl.Task] && has == "" {
			had = ""
		}
		if had != has {
			c.t.Errorf("claim %s of task %s: %q was taken, and the history has %q", cl.Token, cl.Task, had, has)
		}
		delete(history, cl.Token)
	}
	if len(history) > 0 {
		c.t.Errorf("the history has claims that nobody had: %v", history)
	}
}

func (c *crowd) checkSettled() {
	found, err := invariant.Check(c.t.Context(), c.pool, c.Graph(), c.options(true))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, v := range found {
		c.t.Error(v)
	}
}

// member is one of many.
type member struct {
	*crowd
	rng    *rand.Rand
	worker store.ID
	held   []engine.Claim
	count  int
}

func (c *crowd) member(rng *rand.Rand) *member {
	m := &member{crowd: c, rng: rng}
	m.join()
	return m
}

// join makes it somebody new, who holds nothing.
func (m *member) join() {
	id, err := modelRegister(m.t.Context(), m.Engine)
	m.check(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worker, m.held = id, nil
	m.workers = append(m.workers, id)
}

// check lets pass what the caller has to expect where many work: a deadlock is
// undone and may be tried again, and what one names may be gone.
func (m *member) check(err error) bool {
	m.t.Helper()
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return true
	case store.IsRetryable(err), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrOverridden):
	case errors.As(err, &pg) && pg.Code == "23503": // what replaces others cannot be deleted
	default:
		m.t.Error(err)
	}
	return false
}

func (m *member) chance(percent int) bool { return m.rng.IntN(100) < percent }

// some picks one of what all know.
func some[T any](m *member, of *[]T) (one T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(*of); n > 0 {
		one = (*of)[max(0, n-1-m.rng.IntN(min(n, 30)))]
	}
	return one
}

func (m *member) request() store.Submission {
	m.count++
	return store.Submission{Source: "a", RequestID: fmt.Sprintf("%s-%d", m.worker, m.count), Priority: int16(m.rng.IntN(3))}
}

func (m *member) submitted(r store.Receipt, sub store.Submission) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[sub.RequestID] = r.ID
	m.tasks = append(m.tasks, r.ID)
}
