package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

// workAs starts a remote worker with a name and labels.
func (s *site) workAs(name string, labels ...string) *runner {
	s.t.Helper()
	raw, err := json.Marshal(map[string][]string{"labels": labels})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.work(func(_ *remote.ClientOptions, r *stages.Runner) { r.Name, r.Capabilities = name, raw })
}

func (s *site) submitPlaced(stage string, p store.Placement) store.ID {
	s.t.Helper()
	receipt, err := s.Submit(s.t.Context(), store.Submission{Source: "a", Placement: map[string]store.Placement{stage: p}})
	if err != nil {
		s.t.Fatal(err)
	}
	return receipt.ID
}

// completedBy waits until a task is completed, and returns the name of the worker of its only
// attempt and how long the task had waited for it.
func (s *site) completedBy(r *runner, task store.ID) (name string, waited time.Duration) {
	s.t.Helper()
	r.wait(s.t, stages.StageCompleted)
	history, err := s.History(s.t.Context(), task)
	if err != nil || len(history) != 1 {
		s.t.Fatalf("the history is %+v, %v", history, err)
	}
	got, err := s.Get(s.t.Context(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	return history[0].WorkerName, history[0].StartedAt.Sub(got.CreatedAt)
}

func TestCoordinator_GrantsATaskToAWorkerWithTheLabelsItRequires(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "work", Work: echo})
	s.workAs("plain") // has waited longer
	gpu := s.workAs("gpu", "gpu", "north")
	for range 3 {
		task := s.submitPlaced("work", store.Placement{Requires: []string{"gpu"}})
		if name, waited := s.completedBy(gpu, task); name != "gpu" || waited > 3*time.Second {
			t.Errorf("worker %s did the task after %s, want gpu at once", name, waited)
		}
	}
}

func TestCoordinator_LeavesATaskToABusyPreferredWorkerForItsWait(t *testing.T) {
	t.Parallel()
	busy := make(chan struct{}, 1)
	s := setup(t, stages.Stage{Name: "work", Work: func(ctx context.Context, job *stages.Job) (any, error) {
		if job.Source == "long" {
			busy <- struct{}{}
			<-ctx.Done()
		}
		return nil, ctx.Err()
	}})
	s.workAs("gpu", "gpu")
	s.submit("long")
	<-busy
	plain := s.workAs("plain")
	const wait = 1500 * time.Millisecond
	task := s.submitPlaced("work", store.Placement{Prefers: []string{"gpu"}, Wait: wait})
	if name, waited := s.completedBy(plain, task); name != "plain" || waited < wait || waited > wait+5*time.Second {
		t.Errorf("worker %s did the task after %s, want plain after %s", name, waited, wait)
	}
}

// The coordinator does not trust a worker to leave a stage alone.
func TestCoordinator_GrantsAStageOnlyToWorkersWithWhatItRequires(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "work", Requires: []string{"gpu"}, Work: echo})
	without := s.register("key-1")
	var out struct{ Claims []claimed }
	task := s.submit("a")
	s.call("key-1", "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{"work":1}}`, without), &out)
	if len(out.Claims) != 0 {
		t.Errorf("a worker without the label got %+v", out.Claims)
	}
	gpu := s.workAs("gpu", "gpu")
	if name, _ := s.completedBy(gpu, task); name != "gpu" {
		t.Errorf("worker %s did the task", name)
	}
}

func TestRegister_RefusesWhatTheKeyMayNotOffer(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "work", Work: echo})
	s.coordinator = s.startCoordinator(func(o *remote.Options) {
		o.MayOffer = func(_ *http.Request, offer string) bool { return offer == "gpu" }
	})
	for capabilities, want := range map[string]int{
		`{"labels": ["gpu"]}`:                       http.StatusOK,
		`{"labels": null}`:                          http.StatusOK,
		`{"labels": ["gpu", "secret"]}`:             http.StatusUnprocessableEntity,
		`{"encoders": ["secret"]}`:                  http.StatusUnprocessableEntity,
		`{"labels": ["secret"], "Labels": ["gpu"]}`: http.StatusUnprocessableEntity,
		`{"labels": "secret"}`:                      http.StatusUnprocessableEntity,
		`{"labels": {"secret": 1}}`:                 http.StatusUnprocessableEntity,
		`{"labels": ["secret", 1]}`:                 http.StatusUnprocessableEntity,
		`{"labels": ["gpu"], "encoders": "secret"}`: http.StatusUnprocessableEntity,
		`["labels"]`:                                http.StatusUnprocessableEntity,
	} {
		body := `{"protocol":1,"pipeline":"test","host":"h","pid":1,"capabilities":` + capabilities + `}`
		if status, text := s.sendAs("key-1", "POST", "/register", body); status != want {
			t.Errorf("%s: %d %s; want %d", capabilities, status, text, want)
		}
	}
}
