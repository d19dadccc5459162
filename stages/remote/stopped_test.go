package remote_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// stopRegistered stops the workers of a key, as disabling it does.
func (s *site) stopRegistered(key string) {
	s.t.Helper()
	err := pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
		if _, _, err := engine.New(tx, s.pipeline.Graph()).StopRegistered(s.t.Context(), key, "the key was disabled"); err != nil {
			return err
		}
		_, err := tx.Exec(s.t.Context(), "select pg_notify($1, '')", s.pipeline.Graph().ControlChannel()) // as a trigger of keys does
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Nothing sweeps in this test, and the lease would end after 36 s.
func TestCoordinator_GivesTheClaimsOfAStoppedWorkerToAnotherAtOnce(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	stopped := s.register("key-1")
	task := s.submit("a source")
	lost := s.claim("key-1", stopped, "first")
	other := s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.Key = "key-2" })
	waittest.Equal(t, "the waiting workers", 1, s.Waiting)
	at := time.Now()
	s.stopRegistered("key-1")
	if e := other.wait(t, stages.StageStarted); e.Attempt != 1 || time.Since(at) > 5*time.Second {
		t.Errorf("attempt %d has started after %s", e.Attempt, time.Since(at))
	}
	waittest.Equal(t, "the status", store.StatusCompleted, func() store.Status { return s.status(task, "first") })
	waittest.Equal(t, "the answer to a late heartbeat", "worker-unknown", func() string {
		return s.post("key-1", "/heartbeat", fmt.Sprintf(`{"worker_id":%q,"running":[{"token":%q}]}`, stopped, lost.Token))
	})
	if got := s.get("key-1", "/claims/"+lost.Token.String()+"/results/first"); got != "claim-lost" {
		t.Errorf("the answer to a late request of the claim is %q", got)
	}
	report := fmt.Sprintf(`{"worker_id":%q,"reports":[{"token":%q,"outcome":"completed"}]}`, stopped, lost.Token)
	if got := s.post("key-1", "/exchange", report); got != "worker-unknown" {
		t.Errorf("the answer to a late report is %q", got)
	}
}
