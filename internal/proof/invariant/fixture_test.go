package invariant_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a database with the video pipeline and a worker.
type fixture struct {
	*store.Store
	t      *testing.T
	pool   *pgxpool.Pool
	worker store.ID
}

func setup(t *testing.T) fixture { return setupPipeline(t, store.Video()) }

func setupPipeline(t *testing.T, g store.Graph) fixture {
	t.Helper()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	f := fixture{store.New(pool, g), t, pool, store.ID{}}
	const workerSQL = `insert into workers (name, host, pid) values ('test', 'test', 1) returning id`
	err := pool.QueryRow(t.Context(), workerSQL).Scan(&f.worker)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f fixture) exec(sql string) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		f.t.Fatalf("%v\n%s", err, sql)
	}
}

// work claims every ready stage and reports the outcome that end returns, none to keep the claim,
// until no stage is ready.
func (f fixture) work(end func(stage, source string, attempt int) engine.Report) {
	f.t.Helper()
	f.workClaims(func(c engine.Claim) engine.Report {
		return end(f.Graph().Stages()[c.Stage], c.Source, c.Attempt)
	})
}

// workClaims is work for a function that needs more of the claim.
func (f fixture) workClaims(end func(engine.Claim) engine.Report) {
	f.t.Helper()
	n := f.Graph().Queues()
	in := engine.ExchangeRequest{Worker: f.worker, FreeSlots: make([]int, n), ClaimFrom: make([]bool, n)}
	for i := range n {
		in.FreeSlots[i], in.ClaimFrom[i] = 10, true
	}
	for {
		out, err := engine.New(f.pool, f.Graph()).Exchange(f.t.Context(), in)
		if err != nil {
			f.t.Fatal(err)
		}
		in.Reports = nil
		for _, c := range out.Claims {
			r := end(c)
			r.Task, r.Stage, r.Part, r.Token = c.Task, c.Stage, c.Part, c.Token
			if r.Outcome != "" {
				in.Reports = append(in.Reports, r)
			}
		}
		if len(out.Claims) == 0 {
			return
		}
	}
}

// populate makes tasks of every kind: one that is completed; one that failed, was released and is
// completed; a dead one; one that was cancelled in progress; and, with held, one in progress.
func (f fixture) populate(held bool) {
	f.t.Helper()
	sources := []string{"plain", "bumpy", "dead", "cancelled"}
	if held {
		sources = append(sources, "held")
	}
	ids := make(map[string]store.ID)
	for _, s := range sources {
		r, err := f.Submit(f.t.Context(), store.Submission{Source: s, RequestID: s})
		if err != nil {
			f.t.Fatal(err)
		}
		ids[s] = r.ID
	}
	released := false
	f.work(func(stage, source string, attempt int) engine.Report {
		switch {
		case stage != "transcode" || source == "plain":
		case source == "bumpy" && attempt == 1:
			return engine.Report{Outcome: engine.Failed, Error: "no luck"}
		case source == "bumpy" && !released:
			released = true
			return engine.Report{Outcome: engine.Released}
		case source == "dead":
			return engine.Report{Outcome: engine.Failed, Error: "never", Dead: true}
		case source == "cancelled", source == "held":
			return engine.Report{}
		}
		return engine.Report{Outcome: engine.Completed}
	})
	if err := f.Cancel(f.t.Context(), ids["cancelled"]); err != nil {
		f.t.Fatal(err)
	}
}

// check returns the names of the rules with violations, and the violations.
func (f fixture) check(o invariant.Options) (violated, details []string) {
	f.t.Helper()
	violations, err := invariant.Check(f.t.Context(), f.pool, f.Graph(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, v := range violations {
		if !slices.Contains(violated, v.Rule) {
			violated = append(violated, v.Rule)
		}
		details = append(details, v.String())
	}
	slices.Sort(violated)
	return violated, details
}
