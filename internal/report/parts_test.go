package report

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// dividing is a pipeline whose only stage divides, with two workers on two hosts.
type dividing struct {
	t       *testing.T
	pool    *pgxpool.Pool
	st      *store.Store
	e       *engine.Engine
	workers []store.ID
	running map[store.ID][]store.Running
}

func newDividing(t *testing.T) *dividing {
	t.Helper()
	g, err := store.NewGraph("film", store.Node{Name: "encode", Divides: true})
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	d := &dividing{t: t, pool: pool, st: store.New(pool, g), e: engine.New(pool, g), running: make(map[store.ID][]store.Running)}
	for _, host := range []string{"north", "south"} {
		id, err := d.e.RegisterWorker(t.Context(), store.Worker{Host: host, PID: 1})
		if err != nil {
			t.Fatal(err)
		}
		d.workers = append(d.workers, id)
	}
	return d
}

// exchange sends reports of a worker, and claims so many parts.
func (d *dividing) exchange(worker int, parts int, reports ...engine.Report) []engine.Claim {
	d.t.Helper()
	out, err := d.e.Exchange(d.t.Context(), engine.ExchangeRequest{
		Worker: d.workers[worker], Reports: reports, FreeSlots: []int{1, parts}, ClaimFrom: []bool{true, true}, PromoteDue: []bool{true, true},
	})
	if err != nil || len(out.Stale)+len(out.Locked) > 0 {
		d.t.Fatalf("%+v, %v", out, err)
	}
	return out.Claims
}

// divide submits a task and divides it into n parts.
func (d *dividing) divide(n int) store.ID {
	d.t.Helper()
	r, err := d.st.Submit(d.t.Context(), store.Submission{Source: "film"})
	if err != nil {
		d.t.Fatal(err)
	}
	claims := d.exchange(0, 0)
	if len(claims) != 1 || claims[0].Task != r.ID {
		d.t.Fatalf("the claims are %+v", claims)
	}
	division := report(claims[0], engine.Divided)
	for range n {
		division.Parts = append(division.Parts, json.RawMessage("{}"))
	}
	d.exchange(0, 0, division)
	return r.ID
}

func report(c engine.Claim, o engine.Outcome) engine.Report {
	return engine.Report{Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token, Outcome: o, RetryIn: time.Minute}
}

// reportProgress sends the progress of a claim.
func (d *dividing) reportProgress(worker int, c engine.Claim, percent float64) {
	d.t.Helper()
	id := d.workers[worker]
	d.running[id] = append(d.running[id], store.Running{
		Task: c.Task, Stage: "encode", Part: c.Part, Token: c.Token, Attempt: 1, Percent: percent, Speed: 1.5, Note: "encoding",
	})
	if _, err := d.e.Heartbeat(d.t.Context(), engine.HeartbeatRequest{Worker: id, Running: d.running[id]}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dividing) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatal(err)
	}
}

// progress reads the progress of a task's parts.
func (d *dividing) progress(id store.ID) PartsProgress {
	d.t.Helper()
	details, err := Task(d.t.Context(), d.st, id)
	if err != nil {
		d.t.Fatal(err)
	}
	p, ok := FindParts(details.Progress, id, "encode")
	if !ok {
		d.t.Fatalf("there is no progress: %+v", details)
	}
	return p
}

func isNear(got, want float64) bool { return math.Abs(got-want) < 0.05*want }

func TestPartsProgress_CountsAllHosts(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	id := d.divide(10)
	north, south := d.exchange(0, 3), d.exchange(1, 2)
	d.exchange(0, 0, report(north[0], engine.Completed), report(north[1], engine.Failed))
	d.exec(`update film_attempts set finished_at = started_at + interval '20 s' where part = 1`)
	d.reportProgress(0, north[0], 99) // is completed: the report is old
	d.reportProgress(0, north[2], 50)
	d.reportProgress(1, south[0], 25)
	p := d.progress(id)
	if p.Parts != 10 || p.Completed != 1 || p.Running != 3 || p.Hosts != 2 || p.Retrying != 1 || p.Dead != 0 || p.RetryAt == nil {
		t.Errorf("the counts are %+v", p)
	}
	// 1 + 0.5 + 0.25 + 0 of 10 are done; the rest takes 20 s each, three at a time.
	if !isNear(p.Percent, 17.5) || !isNear(p.ETA, 8.25*20/3) || p.Speed != 3 || p.Note != "" {
		t.Errorf("the progress is %+v", p)
	}
	if p.Counts() != "1/10 parts" || p.Others() != "3 running on 2 hosts, 1 retrying" {
		t.Errorf("in words it is %s, %s", p.Counts(), p.Others())
	}
}

func TestPartsProgress_EstimatesFromRunningPartsUntilOneIsCompleted(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	id := d.divide(4)
	if p := d.progress(id); p.ETA != 0 || p.Percent != 0 || p.Others() != "none running" {
		t.Errorf("before the first claim it is %+v", p)
	}
	claims := d.exchange(0, 2)
	if p := d.progress(id); p.ETA != 0 || p.Others() != "2 running on 1 host" {
		t.Errorf("before the first report it is %+v", p)
	}
	d.exec(`update film_parts set locked_at = now() - interval '1000 s' where status = 'inprogress'`)
	d.reportProgress(0, claims[0], 50) // of 2000 s
	d.reportProgress(0, claims[1], 25) // of 4000 s
	if p := d.progress(id); !isNear(p.ETA, 3000*3.25/2) {
		t.Errorf("it is %+v", p)
	}
}

func TestPartsProgress_IgnoresAnEarlierDivision(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	id := d.divide(2)
	claims := d.exchange(0, 1)
	d.exchange(0, 0, report(claims[0], engine.Completed))
	d.exec(`update film_attempts set started_at = started_at - interval '1 hour' where part = 1`)
	if err := d.st.RetryFresh(t.Context(), id, "encode"); err != nil {
		t.Fatal(err)
	}
	again := d.exchange(0, 0)
	division := report(again[0], engine.Divided)
	division.Parts = []json.RawMessage{[]byte("{}"), []byte("{}"), []byte("{}")}
	claims = d.exchange(0, 1, division)
	d.exchange(0, 1, report(claims[0], engine.Completed))
	d.exec(`update film_attempts set finished_at = started_at + interval '6 s' where token = $1`, claims[0].Token)
	if p := d.progress(id); p.Parts != 3 || p.Completed != 1 || !isNear(p.ETA, 12) {
		t.Errorf("it is %+v", p)
	}
}

func TestPartsProgress_ShowsASinglePartAsTheStage(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	id := d.divide(1)
	claims := d.exchange(1, 1)
	d.reportProgress(1, claims[0], -1)
	if p := d.progress(id); p.Percent != -1 || p.Note != "encoding" || p.Counts() != "" || p.Others() != "" {
		t.Errorf("it is %+v", p)
	}
}

func TestPartsProgress_ReadsNothingWhereNoStageIsDivided(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	id := d.divide(1)
	claims := d.exchange(0, 1)
	joins := d.exchange(0, 0, report(claims[0], engine.Completed))
	d.exchange(0, 0, report(joins[0], engine.Completed))
	done, err := d.st.Get(t.Context(), id)
	if err != nil || done.Status != store.StatusCompleted {
		t.Fatalf("the task is %s, %v", done.Status, err)
	}
	never := func(context.Context) ([]store.Worker, error) { return nil, errors.New("read the workers") }
	for name, tasks := range map[string][]store.Task{"no task": nil, "a completed one": {done}} {
		if all, err := New(nil, d.st.Graph()).PartsProgress(t.Context(), tasks, never); err != nil || all != nil {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

func TestStats_CountDividedStagesAsRunning(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	d.divide(3)
	d.exchange(0, 1)
	s, err := New(d.pool, d.st.Graph()).Stats(t.Context())
	if err != nil || s.Running != 1 || s.Stages[0].Running != 1 || s.Ready != 0 {
		t.Errorf("the stats are %+v, %v", s, err)
	}
}

func TestPartsProgress_ReadsManyTasksAtOnce(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	for range 20 {
		d.divide(250)
	}
	d.exchange(0, 40)
	tasks, err := d.st.List(t.Context(), store.ListQuery{})
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	all, err := New(d.pool, d.st.Graph()).PartsProgress(t.Context(), tasks, ListedWorkers(nil))
	t.Logf("20 tasks of 250 parts took %s", time.Since(started))
	running := 0
	for _, p := range all {
		running += p.Running
	}
	if err != nil || len(all) != 20 || running != 40 {
		t.Errorf("%d tasks, %d parts run, %v", len(all), running, err)
	}
}
