package remote_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

func echo(_ context.Context, job *stages.Job) (any, error) { return "made of " + job.Source, nil }

func TestRemoteWorker_CompletesAPipelineWithTheResultsOfItsStages(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo}, stages.Stage{
		Name: "second", Needs: []string{"first"}, Work: func(ctx context.Context, job *stages.Job) (any, error) {
			first, err := stages.Result[string](ctx, job, "first")
			return first + " twice", err
		},
	})
	worker := s.work(nil)
	task := s.submit("a source")
	for range 2 {
		worker.wait(t, stages.StageCompleted)
	}
	raw, err := s.Result(context.Background(), task, "second")
	if err != nil || string(raw) != `"made of a source twice"` {
		t.Fatalf("the result is %s, %v", raw, err)
	}
	workers, err := s.Workers(context.Background(), false)
	if err != nil || len(workers) != 1 || workers[0].Principal != "key-1" {
		t.Fatalf("the workers are %+v, %v", workers, err)
	}
}

func TestRemoteWorker_RetriesAFailedAttemptAfterItsBackoff(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{
		Name: "first", Backoff: stages.Backoff{Base: 50 * time.Millisecond},
		Work: func(_ context.Context, job *stages.Job) (any, error) {
			if job.Attempt < 3 {
				return nil, errors.New("not yet")
			}
			return nil, nil
		},
	})
	worker := s.work(nil)
	s.submit("a source")
	for attempt := 1; attempt < 3; attempt++ {
		if e := worker.wait(t, stages.AttemptFailed); e.Attempt != attempt {
			t.Fatalf("attempt %d failed instead of %d", e.Attempt, attempt)
		}
	}
	if e := worker.wait(t, stages.StageCompleted); e.Attempt != 3 {
		t.Fatalf("attempt %d completed", e.Attempt)
	}
}

func TestRemoteWorker_IsCancelledWithinASecond(t *testing.T) {
	t.Parallel()
	why := make(chan error, 1)
	s := setup(t, stages.Stage{Name: "first", Work: func(ctx context.Context, _ *stages.Job) (any, error) {
		<-ctx.Done()
		why <- context.Cause(ctx)
		return nil, ctx.Err()
	}})
	worker := s.work(nil)
	task := s.submit("a source")
	worker.wait(t, stages.StageStarted)
	// The claim is known to the waiting request, whose coordinator is notified.
	started := time.Now()
	if err := s.Cancel(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	if err := <-why; !errors.Is(err, stages.ErrCancelled) {
		t.Fatalf("the attempt ended because of %v", err)
	}
	if took := time.Since(started); took > time.Second {
		t.Errorf("the cancel took %s", took)
	}
	worker.wait(t, stages.ClaimRevoked)
}

func TestRemoteWorker_StopsAfterADrain(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := setup(t, stages.Stage{Name: "first", Work: func(context.Context, *stages.Job) (any, error) {
		<-release
		return nil, nil
	}})
	worker := s.work(nil)
	first, second := s.submit("first"), s.submit("second")
	worker.wait(t, stages.StageStarted)
	workers, err := s.Workers(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DrainWorker(context.Background(), workers[0].ID); err != nil {
		t.Fatal(err)
	}
	worker.wait(t, stages.WorkerDraining)
	close(release)
	worker.wait(t, stages.WorkerStopped)
	if got := s.status(first, "first"); got != store.StatusCompleted {
		t.Errorf("the first task is %s", got)
	}
	if got := s.status(second, "first"); got != store.StatusPending {
		t.Errorf("the second task is %s", got)
	}
}

func TestRemoteWorker_ClaimsNothingOfAPausedStage(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo}, stages.Stage{Name: "other", Work: echo})
	ctx := context.Background()
	if err := s.Pause(ctx, store.Pause{Stage: "first"}); err != nil {
		t.Fatal(err)
	}
	worker := s.work(nil)
	worker.wait(t, stages.StagePaused) // the coordinator may not have heard of it before
	task := s.submit("a source")
	if e := worker.wait(t, stages.StageCompleted); e.Stage != "other" { // which was claimed after the submission
		t.Errorf("%s was completed", e.Stage)
	}
	var resumed time.Time
	if err := s.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&resumed); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resume(ctx, store.Pause{Stage: "first"}); err != nil {
		t.Fatal(err)
	}
	worker.wait(t, stages.StageCompleted)
	history, err := s.History(ctx, task)
	history = slices.DeleteFunc(history, func(a store.Attempt) bool { return a.Stage == "other" })
	if err != nil || len(history) != 1 || history[0].StartedAt.Before(resumed) {
		t.Errorf("the stage was resumed at %s, and the history is %+v, %v", resumed, history, err)
	}
}

func TestRemoteWorker_GoesOnAtAnotherCoordinator(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := setup(t, stages.Stage{Name: "first", Slots: 2, Work: func(ctx context.Context, job *stages.Job) (any, error) {
		select {
		case <-release:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	s.supervise()
	first := s.coordinator
	balancer := newBalancer(t, first.url)
	worker := s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.URL = balancer.url })
	task := s.submit("a source")
	worker.wait(t, stages.StageStarted)
	second := s.startCoordinator(nil)
	balancer.lead(second.url)
	first.stop()
	close(release)
	worker.wait(t, stages.StageCompleted)
	if got := s.status(task, "first"); got != store.StatusCompleted {
		t.Errorf("the task is %s", got)
	}
	s.submit("another")
	worker.wait(t, stages.StageCompleted)
}

func TestCoordinator_RefusesClaimsOfOtherKeys(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker, other := s.register("key-1"), s.register("key-2")
	task := s.submit("a source")
	token := s.claim("key-1", worker, "first").Token
	if !s.report("key-2", other, token, `"outcome":"completed"`) {
		t.Error("another worker has the claim")
	}
	for name, c := range map[string]struct{ key, path, kind string }{
		"another key":  {"key-2", "/claims/" + token.String() + "/results/first", "claim-lost"},
		"no valid key": {"other", "/claims/" + token.String() + "/results/first", "unauthenticated"},
		"no such path": {"key-1", "/claims/" + token.String() + "/finish", "not-found"},
		"no claim":     {"key-1", "/claims/x/results/first", "not-found"},
	} {
		if got := s.get(c.key, c.path); got != c.kind {
			t.Errorf("%s: the problem is %q, want %q", name, got, c.kind)
		}
	}
	if got := s.status(task, "first"); got != store.StatusInProgress {
		t.Errorf("the task is %s", got)
	}
	if s.report("key-1", worker, token, `"outcome":"completed","result":1`) {
		t.Error("the worker's own claim is lost")
	}
	if !s.report("key-1", worker, token, `"outcome":"completed","result":2`) {
		t.Error("the claim is not lost after its report")
	}
	if got := s.status(task, "first"); got != store.StatusCompleted {
		t.Errorf("the task is %s", got)
	}
}

func TestRun_EndsWithTheReasonWhenTheKeyIsNotValid(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	client, err := remote.NewClient(remote.ClientOptions{URL: s.url, Key: "other", Graph: s.pipeline.Graph()})
	if err != nil {
		t.Fatal(err)
	}
	r := stages.Runner{Pipeline: s.pipeline, Backend: client.Backend(), Wakes: client.Wakes()}
	if err := r.Run(context.Background()); !errors.Is(err, remote.ErrRefused) {
		t.Fatalf("run returned %v", err)
	}
}

func TestRemoteWorker_StopsAtOnceWhenItsKeyIsRevoked(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	s := setup(t, stages.Stage{Name: "first", Work: func(ctx context.Context, _ *stages.Job) (any, error) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}})
	var revoked atomic.Bool
	c := s.startCoordinator(func(o *remote.Options) {
		o.Authenticate = func(r *http.Request) (string, error) {
			if revoked.Load() {
				return "", errors.New("the key is revoked")
			}
			return authenticate(r)
		}
	})
	client, err := remote.NewClient(remote.ClientOptions{URL: c.url, Key: "key-1", Graph: s.pipeline.Graph()})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan stages.Event, 100)
	r := stages.Runner{
		Pipeline: s.pipeline, Backend: client.Backend(), Wakes: client.Wakes(), Grace: time.Hour,
		Observe: func(e stages.Event) { started <- e },
	}
	run := make(chan error, 1)
	go func() { run <- r.Run(context.Background()) }()
	s.submit("a source")
	for e := <-started; e.Kind != stages.StageStarted; e = <-started {
	}
	revoked.Store(true)
	at := time.Now()
	err = <-run
	if took := time.Since(at); took > 3*time.Second {
		t.Errorf("the worker ended after %s", took)
	}
	if !errors.Is(err, remote.ErrRefused) || !strings.Contains(err.Error(), "the key is revoked") {
		t.Errorf("run returned %v", err)
	}
	if why := <-ended; !errors.Is(why, stages.ErrLeaseLost) {
		t.Errorf("the attempt ended because of %v", why)
	}
}

// Nobody sees the end of its connection, so nobody takes its work before the lease.
func TestRemoteWorker_KeepsItsWorkWhileAProxyReachesNoCoordinator(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var attempts atomic.Int32
	s := setup(t, stages.Stage{Name: "first", Work: func(ctx context.Context, _ *stages.Job) (any, error) {
		attempts.Add(1)
		select {
		case <-release:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	s.supervise()
	balancer := newBalancer(t, s.url)
	const lease = 10 * time.Second
	worker := s.work(func(o *remote.ClientOptions, r *stages.Runner) { o.URL, r.Lease = balancer.url, lease })
	task := s.submit("a source")
	worker.wait(t, stages.StageStarted)
	s.stop()
	time.Sleep(2 * store.DisconnectGrace(lease)) // the time is the test: the worker must do nothing in it
	balancer.lead(s.startCoordinator(nil).url)
	close(release)
	worker.wait(t, stages.StageCompleted)
	if n := attempts.Load(); n != 1 {
		t.Errorf("the work began %d times", n)
	}
	if got := s.status(task, "first"); got != store.StatusCompleted {
		t.Errorf("the task is %s", got)
	}
}
