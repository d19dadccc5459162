package subprocess_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/subprocess"
)

func TestMain(m *testing.M) {
	subprocess.RunIfChild([]harness.System{fake})
	goleak.VerifyTestMain(m)
}

// fake is a system in memory. The url selects its error.
var fake = harness.System{
	Name: "fake",
	Start: func(_ context.Context, url string, o harness.Options) (harness.Workers, error) {
		if url == startError {
			return nil, errors.New(url)
		}
		return workers{url, o}, nil
	},
}

const (
	noError     = "no error"
	startError  = "start fails"
	submitError = "submit fails"
	crash       = "the process crashes"
	stopError   = "stop fails"
)

type workers struct {
	url string
	harness.Options
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
			for kind := harness.Started; kind <= harness.Completed; kind++ {
				if w.Observe != nil {
					w.Observe(harness.Observation{Task: first + int64(i), Stage: s, Kind: kind, At: time.Now()})
				}
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
	all []harness.Observation
}

func (r *observations) observe(o harness.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, o)
}

func TestStop_ReturnsAfterAllObservationsArrived(t *testing.T) {
	t.Parallel()
	var seen observations
	ctx := t.Context()
	started := time.Now()
	c, err := subprocess.Start(ctx, fake, noError, harness.Options{
		Slots: 3, Stages: []harness.Stage{harness.Transcode, harness.Publish}, Observe: seen.observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	if err := errors.Join(c.Submit(ctx, 7), c.SubmitAll(ctx, 100, n), c.SubmitAll(ctx, 0, 0), c.Stop(ctx)); err != nil {
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
		stage := []harness.Stage{harness.Transcode, harness.Publish}[i%6/3]
		if m.Task != task || m.Stage != stage || m.Kind != harness.Kind(i%3) ||
			m.At.Before(started.Round(0)) || m.At.After(ended.Round(0)) {
			t.Fatalf("observation %d is %+v; want %v of task %d", i, m, stage, task)
		}
	}
}

func TestObservations_ArriveBeforeTheProcessStops(t *testing.T) {
	t.Parallel()
	arrived := make(chan harness.Observation, 3)
	c, err := subprocess.Start(t.Context(), fake, noError, harness.Options{
		Stages: []harness.Stage{harness.Ingest}, Observe: func(m harness.Observation) { arrived <- m },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Submit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for want := harness.Started; want <= harness.Completed; want++ {
		if m := <-arrived; m.Kind != want {
			t.Errorf("%+v, want %v", m, want)
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStart_WorksWithoutObserver(t *testing.T) {
	t.Parallel()
	c, err := subprocess.Start(t.Context(), fake, noError, harness.Options{Stages: []harness.Stage{harness.Ingest}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Submit(t.Context(), 1), c.Stop(t.Context())); err != nil {
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
	c, err := subprocess.Start(ctx, fake, url, harness.Options{})
	if err != nil {
		return err
	}
	return errors.Join(c.Submit(ctx, 1), c.Stop(ctx))
}

// The process ends without Stop, which may need a database that is gone.
func TestProcess_EndsAtOnceWithoutItsParent(t *testing.T) {
	t.Parallel()
	err := subprocess.RunWithoutParent(fake, stopError)
	if err == nil || !strings.Contains(err.Error(), "is gone") || strings.Contains(err.Error(), stopError) {
		t.Errorf("error is %v", err)
	}
}

func TestStart_RejectsUnknownSystem(t *testing.T) {
	t.Parallel()
	_, err := subprocess.Start(t.Context(), harness.System{Name: "unknown"}, noError, harness.Options{})
	if err == nil || !strings.Contains(err.Error(), `unknown system "unknown"`) {
		t.Errorf("error is %v", err)
	}
}

func TestObservation_SurvivesEncoding(t *testing.T) {
	t.Parallel()
	want := []harness.Observation{
		{Task: 1<<40 + 3, Stage: harness.Publish, Kind: harness.Completed, At: time.Unix(1, 2)},
		{Task: -1, Stage: harness.Ingest, Kind: harness.Started, At: time.Unix(0, 0)},
	}
	if got := subprocess.EncodeAndDecode(want); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
