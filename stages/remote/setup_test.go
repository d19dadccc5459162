package remote_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a test's database, its pipeline, and a coordinator.
type site struct {
	*store.Store
	t        testing.TB
	pool     *pgxpool.Pool
	pipeline *stages.Pipeline
	*coordinator
}

// coordinator is a running Coordinator at an address.
type coordinator struct {
	*remote.Coordinator
	url  string
	http *httptest.Server
	stop func() // ends Run, then the server
}

// authenticate accepts the keys that begin with "key-" and refuses others.
func authenticate(r *http.Request) (string, error) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !strings.HasPrefix(key, "key-") {
		return "", errors.New("the key is not valid")
	}
	return key, nil
}

func setup(t testing.TB, list ...stages.Stage) *site {
	t.Helper()
	p, err := stages.New("test", list...)
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, pgtest.SQL(p.Graph().SchemaSQL(), p.Graph().TriggersSQL()))
	s := &site{Store: store.New(pool, p.Graph()), t: t, pool: pool, pipeline: p}
	s.coordinator = s.startCoordinator(nil)
	return s
}

// startCoordinator starts a coordinator. change may be nil.
func (s *site) startCoordinator(change func(*remote.Options)) *coordinator {
	s.t.Helper()
	o := remote.Options{Pool: s.pool, Pipeline: s.pipeline, Authenticate: authenticate}
	if change != nil {
		change(&o)
	}
	c := &coordinator{Coordinator: remote.NewCoordinator(o)}
	c.http = httptest.NewServer(c)
	c.url = c.http.URL
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("coordinator: %v", err)
		}
		c.http.Close()
	})
	s.t.Cleanup(c.stop)
	return c
}

// runner is a running Runner, as one process would have it.
type runner struct {
	stages.Runner
	client *remote.Client
	events chan stages.Event
	stop   func() // drains and waits
}

// work starts a remote worker at the site's coordinator until the test ends or stop is called.
func (s *site) work(change func(*remote.ClientOptions, *stages.Runner)) *runner {
	s.t.Helper()
	o := remote.ClientOptions{URL: s.url, Key: "key-1", Graph: s.pipeline.Graph()}
	r := &runner{events: make(chan stages.Event, 10000)}
	r.Runner = stages.Runner{
		Pipeline: s.pipeline, Grace: 5 * time.Second, Observe: func(e stages.Event) { r.events <- e },
	}
	if change != nil {
		change(&o, &r.Runner)
	}
	transport := &http.Transport{}
	o.HTTP = &http.Client{Transport: transport}
	client, err := remote.NewClient(o)
	if err != nil {
		s.t.Fatal(err)
	}
	r.client, r.Backend, r.Wakes = client, client.Backend(), client.Wakes()
	s.run(r)
	s.t.Cleanup(transport.CloseIdleConnections)
	r.wait(s.t, stages.WorkerStarted)
	return r
}

// supervise starts a worker with the database that leaves all stages to others: it sweeps.
func (s *site) supervise() *runner {
	s.t.Helper()
	r := &runner{events: make(chan stages.Event, 10000)}
	r.Runner = stages.Runner{
		Pool: s.pool, Pipeline: withoutSlots(s.t, s.pipeline), SweepInterval: 500 * time.Millisecond,
		Observe: func(e stages.Event) { r.events <- e },
	}
	s.run(r)
	r.wait(s.t, stages.WorkerStarted)
	return r
}

func (s *site) run(r *runner) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("run: %v", err)
		}
	})
	s.t.Cleanup(r.stop)
}

// withoutSlots returns the pipeline with stages that are left to other processes.
func withoutSlots(t testing.TB, p *stages.Pipeline) *stages.Pipeline {
	t.Helper()
	g := p.Graph()
	var list []stages.Stage
	for i, name := range g.Stages() {
		stage := stages.Stage{Name: name, Slots: -1, Work: func(context.Context, *stages.Job) (any, error) {
			return nil, errors.New("this process has no slots")
		}}
		for _, need := range g.Needs(i) {
			stage.Needs = append(stage.Needs, g.Stages()[need])
		}
		list = append(list, stage)
	}
	q, err := stages.New(g.Name(), list...)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// wait receives events until one of the kind arrives, and returns it.
func (r *runner) wait(t testing.TB, kind stages.Kind) stages.Event {
	t.Helper()
	timeout := time.NewTimer(60 * time.Second)
	defer timeout.Stop()
	for {
		select {
		case e := <-r.events:
			if e.Kind == kind {
				return e
			}
		case <-timeout.C:
			t.Fatalf("no event %s", kind)
		}
	}
}

func (s *site) submit(source string) store.ID {
	s.t.Helper()
	receipt, err := s.Submit(context.Background(), store.Submission{Source: source})
	if err != nil {
		s.t.Fatal(err)
	}
	return receipt.ID
}

// status is the status of a stage of a task.
func (s *site) status(task store.ID, stage string) store.Status {
	s.t.Helper()
	got, err := s.Get(context.Background(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	return got.Stages[stageNumber(s.t, s.pipeline, stage)].Status
}

func stageNumber(t testing.TB, p *stages.Pipeline, name string) int {
	t.Helper()
	i, ok := p.Graph().Stage(name)
	if !ok {
		t.Fatalf("no stage %q", name)
	}
	return i
}
