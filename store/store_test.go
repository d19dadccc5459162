package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// The stages of the video pipeline by number.
const (
	ingest = iota
	transcode
	metadata
	assemble
	publish
)

// tables are a pipeline's tables as programs, workers and operators use them.
type tables struct {
	*store.Store
	*engine.Engine
	*report.Reader
}

func newTables(db store.DB, g store.Graph) tables {
	return tables{store.New(db, g), engine.New(db, g), report.New(db, g)}
}

// retryDead retries the dead tasks that match.
func (s tables) retryDead(ctx context.Context, f report.DeadFilter, o store.RetryAllOptions) (store.RetryAllResult, error) {
	tasks, err := s.FindDead(ctx, f)
	if err != nil {
		return store.RetryAllResult{}, err
	}
	return s.RetryDead(ctx, tasks, o)
}

func (s tables) Graph() store.Graph { return s.Store.Graph() }

// bundle is a database with the video pipeline, for one test.
type bundle struct {
	tables
	t    testing.TB
	pool *pgxpool.Pool
}

func newBundle(t testing.TB, pool *pgxpool.Pool, g store.Graph) bundle {
	return bundle{newTables(pool, g), t, pool}
}

func setup(t testing.TB) bundle {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	return newBundle(t, pool, g)
}

// beat is a sign of life of a worker without a session, and what it hears of
// its claims.
func (b bundle) beat(w store.ID, claims ...engine.Claim) ([]store.ID, error) {
	out, err := b.Heartbeat(b.t.Context(), engine.HeartbeatRequest{Worker: w, Claims: claims})
	return tokensOfLost(out.LostClaims), err
}

// worker registers one more worker.
func (b bundle) worker() store.ID {
	b.t.Helper()
	id, err := b.RegisterWorker(b.t.Context(), store.Worker{Host: "test", PID: 1})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// submit adds a task of which nothing but the source matters.
func (b bundle) submit() store.ID {
	b.t.Helper()
	return b.submission(store.Submission{Source: "a.mp4"})
}

func (b bundle) submission(s store.Submission) store.ID {
	b.t.Helper()
	r, err := b.Submit(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.ID
}

// turn makes a turn with the given free slots and reports, looking at the
// stages given.
func (b bundle) turn(worker store.ID, free int, reports []engine.Report, look ...int) engine.ExchangeResult {
	b.t.Helper()
	out, err := b.Exchange(b.t.Context(), turn(worker, free, reports, look...))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func turn(worker store.ID, free int, reports []engine.Report, look ...int) engine.ExchangeRequest {
	in := engine.ExchangeRequest{Worker: worker, Reports: reports, FreeSlots: make([]int, 5), ClaimFrom: make([]bool, 5), PromoteDue: make([]bool, 5)}
	for i := range in.FreeSlots {
		in.FreeSlots[i] = free
	}
	for _, i := range look {
		in.ClaimFrom[i] = true
	}
	return in
}

// claim claims one stage of the only ready task.
func (b bundle) claim(worker store.ID, stage int) engine.Claim {
	b.t.Helper()
	out := b.turn(worker, 1, nil, stage)
	if len(out.Claims) != 1 {
		b.t.Fatalf("claimed %d tasks, want 1", len(out.Claims))
	}
	return out.Claims[0]
}

func completed(c engine.Claim) engine.Report {
	return engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed}
}

func failed(c engine.Claim, in time.Duration) engine.Report {
	return engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Failed, Error: "no luck", Class: "error", RetryIn: in}
}

// finish takes a task from wherever its claims are to the end of its stages.
func (b bundle) finish(worker store.ID, claims ...engine.Claim) {
	b.t.Helper()
	for len(claims) > 0 {
		var reports []engine.Report
		for _, c := range claims {
			reports = append(reports, completed(c))
		}
		claims = b.turn(worker, 1, reports).Claims
	}
}

func (b bundle) get(id store.ID) store.Task {
	b.t.Helper()
	t, err := b.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

// statuses are those of a task's stages, in order.
func (b bundle) statuses(id store.ID) [5]store.Status {
	b.t.Helper()
	var s [5]store.Status
	for i, st := range b.get(id).Stages {
		s[i] = st.Status
	}
	return s
}

func (b bundle) want(id store.ID, want ...store.Status) {
	b.t.Helper()
	if got := b.statuses(id); got != [5]store.Status(want) {
		b.t.Errorf("stages are %v, want %v", got, want)
	}
}

func (b bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b bundle) history(id store.ID) []store.Attempt {
	b.t.Helper()
	h, err := b.History(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// listen collects the notifications on the channels from now on; the returned
// function gives back those that came until now.
func (b bundle) listen(channels ...string) func() []string {
	b.t.Helper()
	ctx := b.t.Context()
	conn, err := pgx.Connect(ctx, b.pool.Config().ConnString())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close(context.Background()) })
	for _, c := range append(channels, "flush") {
		if _, err := conn.Exec(ctx, "listen "+c); err != nil {
			b.t.Fatal(err)
		}
	}
	return func() []string {
		b.t.Helper()
		b.exec("notify flush")
		var got []string
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				b.t.Fatal(err)
			}
			if n.Channel == "flush" {
				return got
			}
			got = append(got, n.Channel)
		}
	}
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }
