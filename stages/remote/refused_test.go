package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// judge is Files without files, that refuses results which say so.
type judge struct{}

func (judge) OpenInput(context.Context, engine.Claim, string) (io.ReadSeekCloser, error) {
	return nil, fs.ErrNotExist
}

func (judge) OutputSize(context.Context, engine.Claim, string) (int64, error) { return 0, nil }

func (judge) WriteOutput(context.Context, engine.Claim, string, int64, int64, string, io.Reader) error {
	return errors.New("there are no outputs")
}

func (judge) Accept(_ context.Context, _ engine.Claim, result json.RawMessage) (json.RawMessage, error) {
	if bytes.Equal(result, []byte(`"rubbish"`)) {
		return nil, &remote.RefusedError{Reason: "it is rubbish"}
	}
	return result, nil
}

// A worker that delivers rubbish must not make a task dead: its key is disabled after the third
// refusal, and then another worker gets the task.
func TestCoordinator_RetriesRefusedResultsBeyondTheLimitOfAttempts(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{
		Name: "first", MaxAttempts: 3, Backoff: stages.Backoff{Base: 1},
		Work: func(_ context.Context, job *stages.Job) (any, error) {
			if job.Attempt <= 3 {
				return "rubbish", nil
			}
			return "good", nil
		},
	})
	type refusal struct{ principal, reason, class string }
	refusals := make(chan refusal, 10)
	c := s.startCoordinator(func(o *remote.Options) {
		o.Files = judge{}
		o.OnRefused = func(worker store.ID, principal, reason string) {
			var r refusal
			err := s.pool.QueryRow(context.Background(), `select w.principal, a.error_class
				from test_attempts a join workers w on w.id = a.worker_id
				where w.id = $1 order by a.attempt desc limit 1`, worker).Scan(&r.principal, &r.class)
			if err != nil || r.principal != principal {
				t.Errorf("the refusal of %s is not in the history: %+v, %v", principal, r, err)
			}
			r.reason = reason
			refusals <- r
		}
	})
	s.work(func(o *remote.ClientOptions, _ *stages.Runner) { o.URL = c.url })
	task := s.submit("a source")
	for range 3 {
		if got, want := <-refusals, (refusal{"key-1", "it is rubbish", remote.ClassRefused}); got != want {
			t.Errorf("the refusal is %+v", got)
		}
	}
	waittest.Equal(t, "the status", store.StatusCompleted, func() store.Status { return s.status(task, "first") })
}
