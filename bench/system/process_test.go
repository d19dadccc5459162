package system_test

import (
	"context"
	"errors"
	"net"
	"net/rpc"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/system"
)

// fake is a system in memory. The url selects its error.
type fake struct{}

func (fake) Name() string                                      { return "fake" }
func (fake) Settings() string                                  { return "in memory" }
func (fake) SetUp(context.Context, string) error               { return nil }
func (fake) Preload(context.Context, string, int64, int) error { return nil }
func (fake) Start(_ context.Context, url string, o system.Options) (system.Workers, error) {
	if url == startError {
		return nil, errors.New(url)
	}
	return workers{url, o}, nil
}

// unknown is a system that this program does not have as a child.
type unknown struct{ fake }

func (unknown) Name() string { return "unknown" }

const (
	noError     = "no error"
	startError  = "start fails"
	submitError = "submit fails"
	crash       = "the process crashes"
	stopError   = "stop fails"
)

type workers struct {
	url string
	system.Options
}

// Submit reports the observations of one task.
func (w workers) Submit(ctx context.Context, task int64) error { return w.SubmitAll(ctx, task, 1) }

// SubmitAll reports the observations of n tasks, or fails as the URL demands.
func (w workers) SubmitAll(_ context.Context, first int64, n int) error {
	switch w.url {
	case submitError:
		return errors.New(w.url)
	case crash:
		os.Exit(3)
	}
	for i := range n {
		for _, s := range w.Stages {
			for kind := system.Started; kind <= system.Completed; kind++ {
				w.Observe(system.Observation{Task: first + int64(i), Stage: s, Kind: kind, At: time.Now()})
			}
		}
	}
	return nil
}

// Stop returns an error if the URL demands one.
func (w workers) Stop(context.Context) error {
	if w.url == stopError {
		return errors.New(w.url)
	}
	return nil
}

// observations keeps all observations.
type observations struct {
	mu  sync.Mutex
	all []system.Observation
}

func (r *observations) observe(o system.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, o)
}

func TestStop_ReturnsAfterAllObservationsArrived(t *testing.T) {
	t.Parallel()
	var seen observations
	ctx := t.Context()
	started := time.Now()
	c, err := system.StartProcess(ctx, fake{}, noError, system.Options{
		Slots: 3, Stages: []system.Stage{system.Transcode, system.Publish}, Observe: seen.observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	if err := errors.Join(c.Submit(ctx, 7), c.SubmitAll(ctx, 100, n), c.Stop(ctx)); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	if len(seen.all) != (n+1)*6 {
		t.Fatalf("%d observations, want %d", len(seen.all), (n+1)*6)
	}
	for i, m := range seen.all {
		task := int64(7)
		if i >= 6 {
			task = 100 + int64(i/6) - 1
		}
		stage := []system.Stage{system.Transcode, system.Publish}[i%6/3]
		if m.Task != task || m.Stage != stage || m.Kind != system.Kind(i%3) ||
			m.At.Before(started.Round(0)) || m.At.After(ended.Round(0)) {
			t.Fatalf("observation %d is %+v; want %v of task %d", i, m, stage, task)
		}
	}
}

func TestObservations_ArriveBeforeTheProcessStops(t *testing.T) {
	t.Parallel()
	arrived := make(chan system.Observation, 3)
	c, err := system.StartProcess(t.Context(), fake{}, noError, system.Options{
		Stages: []system.Stage{system.Ingest}, Observe: func(m system.Observation) { arrived <- m },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Submit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for want := system.Started; want <= system.Completed; want++ {
		if m := <-arrived; m.Kind != want {
			t.Errorf("%+v, want %v", m, want)
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWorkers_ReturnErrorsOfTheProcess(t *testing.T) {
	t.Parallel()
	for _, what := range []string{startError, submitError, stopError} {
		if err := startSubmitAndStop(t.Context(), what); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: error is %v", what, err)
		}
	}
	if err := startSubmitAndStop(t.Context(), crash); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%s: error is %v", crash, err)
	}
}

func startSubmitAndStop(ctx context.Context, url string) error {
	c, err := system.StartProcess(ctx, fake{}, url, system.Options{})
	if err != nil {
		return err
	}
	return errors.Join(c.Submit(ctx, 1), c.Stop(ctx))
}

// The process ends without Stop, which may need a database that is gone.
func TestServe_EndsAtOnceWithoutItsParent(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- system.Serve(fake{}, stopError, there) }()
	client := rpc.NewClient(here)
	if err := client.Call("Workers.Start", [2]int64{}, new(int)); err != nil {
		t.Fatal(err)
	}
	waits := client.Go("Workers.Observations", 0, &[]int64{}, nil)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("error is %v", err)
	}
	<-waits.Done
}

func TestStart_RejectsUnknownSystem(t *testing.T) {
	t.Parallel()
	_, err := system.StartProcess(t.Context(), unknown{}, noError, system.Options{})
	if err == nil || !strings.Contains(err.Error(), `unknown system "unknown"`) {
		t.Errorf("error is %v", err)
	}
}
