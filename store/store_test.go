package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// tables is a pipeline's tables with all that programs, workers and operators can call.
type tables struct {
	*store.Store
	*engine.Engine
	*report.Reader
}

func newTables(db store.DB, g store.Graph) tables {
	return tables{store.New(db, g), engine.New(db, g), report.New(db, g)}
}

// retryDead retries the dead tasks that match.
func (s tables) retryDead(ctx context.Context, f report.DeadFilter,
	o store.RetryAllOptions) (store.RetryAllResult, error) {
	tasks, err := s.FindDead(ctx, f)
	if err != nil {
		return store.RetryAllResult{}, err
	}
	return s.RetryDead(ctx, tasks, o)
}

func (s tables) Graph() store.Graph { return s.Store.Graph() }

// bundle is a test's database with the video pipeline.
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

// heartbeat sends a heartbeat of a worker without a session, and returns the tokens of
// the claims that it lost.
func (b bundle) heartbeat(w store.ID, claims ...engine.Claim) ([]store.ID, error) {
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

// submit submits a task with default values.
func (b bundle) submit() store.ID {
	b.t.Helper()
	return b.submitTask(store.Submission{Source: "a.mp4"})
}

func (b bundle) submitTask(s store.Submission) store.ID {
	b.t.Helper()
	r, err := b.Submit(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.ID
}

// exchange makes an exchange with as many free slots in each stage and the reports. It claims ready tasks from the given
// stages, or from those that reports may open.
func (b bundle) exchange(worker store.ID, free int, reports []engine.Report, claimFrom ...int) engine.ExchangeResult {
	b.t.Helper()
	out, err := b.Exchange(b.t.Context(), exchangeRequest(worker, free, reports, claimFrom...))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func exchangeRequest(worker store.ID, free int, reports []engine.Report, claimFrom ...int) engine.ExchangeRequest {
	in := engine.ExchangeRequest{
		Worker: worker, Reports: reports, FreeSlots: make([]int, 5), ClaimFrom: make([]bool, 5),
	}
	for i := range in.FreeSlots {
		in.FreeSlots[i] = free
	}
	if len(claimFrom) == 0 && len(reports) > 0 && free > 0 {
		claimFrom = []int{transcode, metadata, assemble, publish}
	}
	for _, i := range claimFrom {
		in.ClaimFrom[i] = true
	}
	return in
}

// claim claims one stage of the only ready task, and returns the claim.
func (b bundle) claim(worker store.ID, stage int) engine.Claim {
	b.t.Helper()
	out := b.exchange(worker, 1, nil, stage)
	if len(out.Claims) != 1 {
		b.t.Fatalf("claimed %d tasks, want 1", len(out.Claims))
	}
	return out.Claims[0]
}

func completed(c engine.Claim) engine.Report {
	return engine.Report{Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token, Outcome: engine.Completed}
}

func failed(c engine.Claim, in time.Duration) engine.Report {
	return engine.Report{
		Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token, Outcome: engine.Failed, Error: "work failed", Class: "error",
		RetryIn: in,
	}
}

// completeAll completes the claims, and all stages that continue from them.
func (b bundle) completeAll(worker store.ID, claims ...engine.Claim) {
	b.t.Helper()
	for len(claims) > 0 {
		var reports []engine.Report
		for _, c := range claims {
			reports = append(reports, completed(c))
		}
		claims = b.exchange(worker, 1, reports).Claims
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

// statuses returns the statuses of a task's stages.
func (b bundle) statuses(id store.ID) [5]store.Status {
	b.t.Helper()
	var s [5]store.Status
	for i, st := range b.get(id).Stages {
		s[i] = st.Status
	}
	return s
}

func (b bundle) wantStatuses(id store.ID, want ...store.Status) {
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

// listen listens on the channels. The returned function returns the channels of the
// notifications since the last call.
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

// joinable returns a task whose parts are completed, so that transcode can join them.
func (b bundle) joinable(w store.ID) store.ID {
	id := b.divided(w, 2)
	claims := b.claimParts(w, 2)
	b.exchange(w, 0, []engine.Report{completed(claims[0]), completed(claims[1])})
	return id
}

func TestInTx_RetriesAfterDeadlocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attempts := 0
	err := b.InTx(t.Context(), func(in *store.Store) error {
		_, err := in.Submit(t.Context(), store.Submission{Source: "a.mp4"})
		if attempts++; attempts < 3 {
			return &pgconn.PgError{Code: "40P01"}
		}
		return err
	})
	if n := b.queryInt("select count(*) from tasks"); err != nil || attempts != 3 || n != 1 {
		t.Errorf("after %d attempts there are %d tasks: %v", attempts, n, err)
	}
	attempts = 0
	err = b.InTx(t.Context(), func(*store.Store) error {
		attempts++
		return &pgconn.PgError{Code: "40001"}
	})
	if !store.IsRetryable(err) || attempts > 10 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
}
