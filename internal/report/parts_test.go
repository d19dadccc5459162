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
		Worker: d.workers[worker], Reports: reports, FreeSlots: []int{1, parts}, ClaimFrom: []bool{true, true}, PromoteDue: true,
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
	d.exec(`update film_steps set locked_at = now() - interval '1000 s' where status = 'running'`)
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

func TestStats_CountTasksAndTheStepsOfStagesWithTheirParts(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	d.divide(5)
	claims := d.exchange(0, 3)
	d.exchange(0, 0, report(claims[0], engine.Failed))
	d.exec(`insert into film_tasks (source, scheduled_at) select 'later', now() + interval '1 day' from generate_series(1, 3)`)
	d.exec(`insert into film_tasks (source) values ('next')`)
	d.exec(`update film_steps set ready_at = now() - interval '1 hour' where part = 5`)
	s, err := New(d.pool, d.st.Graph()).Stats(t.Context())
	if err != nil || s.Running != 1 || s.Ready != 2 || s.Retrying != 1 || s.Scheduled != 3 || s.Dead != 0 {
		t.Errorf("the stats are %+v, %v", s, err)
	}
	encode := s.Stages[0]
	if encode.OldestReady.Round(time.Minute) != time.Hour {
		t.Errorf("the oldest step has been ready for %s", encode.OldestReady)
	}
	encode.OldestReady = 0
	if want := (StageStats{Stage: "encode", Ready: 3, Running: 2, Scheduled: 3, Retrying: 1}); encode != want {
		t.Errorf("the steps are %+v, want %+v", encode, want)
	}
	dead := report(claims[1], engine.Failed)
	dead.Dead = true
	d.exchange(0, 0, dead) // and claims the next task
	s, err = New(d.pool, d.st.Graph()).Stats(t.Context())
	if err != nil || s.Running != 1 || s.Ready != 0 || s.Retrying != 0 || s.Scheduled != 3 || s.Dead != 1 {
		t.Errorf("with a dead stage the stats are %+v, %v", s, err)
	}
	if want := (StageStats{Stage: "encode", Running: 1, Scheduled: 3, Dead: 1}); s.Stages[0] != want {
		t.Errorf("with a dead stage the steps are %+v, want %+v", s.Stages[0], want)
	}
}

func TestPartsProgress_CountsThePartsThatAreDead(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	id := d.divide(5)
	claims := d.exchange(0, 3)
	dead := report(claims[2], engine.Failed)
	dead.Dead = true
	d.exchange(0, 0, report(claims[0], engine.Completed), report(claims[1], engine.Failed), dead)
	if p := d.progress(id); p.Completed != 1 || p.Running != 0 || p.Retrying != 0 || p.Dead != 1 {
		t.Errorf("it is %+v", p)
	}
	details, err := Task(t.Context(), d.st, id)
	if err != nil || len(details.Parts) != 5 || details.Parts[2].Status != store.StatusDead ||
		details.Parts[1].Status != store.StatusCancelled || details.Parts[4].Status != store.StatusCancelled {
		t.Errorf("the parts are %+v, %v", details.Parts, err)
	}
	if err := d.st.Retry(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	if p := d.progress(id); p.Completed != 1 || p.Dead != 0 {
		t.Errorf("after a retry it is %+v", p)
	}
}

func TestPlacementWarnings_NameDividedStagesWhoseRequirementNoWorkerOffers(t *testing.T) {
	t.Parallel()
	d := newDividing(t)
	if _, err := d.st.Submit(t.Context(), store.Submission{
		Source: "film", Placement: map[string]store.Placement{"encode": {Requires: []string{"gpu"}}},
	}); err != nil {
		t.Fatal(err)
	}
	claim := d.exchange(0, 0)[0]
	warnings := func() int {
		t.Helper()
		details, err := Task(t.Context(), d.st, claim.Task)
		if err != nil {
			t.Fatal(err)
		}
		return len(details.Warnings)
	}
	if n := warnings(); n != 0 {
		t.Errorf("there are %d warnings while it is divided", n)
	}
	division := report(claim, engine.Divided)
	division.Parts = []json.RawMessage{[]byte("{}")}
	if claims := d.exchange(0, 1, division); len(claims) != 0 || warnings() != 1 {
		t.Errorf("%d parts were claimed, there are %d warnings", len(claims), warnings())
	}
	gpu, err := d.e.RegisterWorker(t.Context(), store.Worker{Host: "east", PID: 1, Capabilities: []byte(`{"labels": ["gpu"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	d.workers = append(d.workers, gpu)
	part := d.exchange(2, 1)
	if len(part) != 1 || warnings() != 0 {
		t.Errorf("%d parts were claimed, there are %d warnings", len(part), warnings())
	}
	d.exchange(2, 0, report(part[0], engine.Completed)) // which claims the join
	d.exec(`update film_workers set lost_at = now() where id = $1`, gpu)
	if n := warnings(); n != 0 {
		t.Errorf("there are %d warnings when all parts are completed", n)
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
