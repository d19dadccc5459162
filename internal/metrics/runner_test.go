package metrics

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Each task ends once in each stage, even after failed attempts, and no slot stays busy.
func TestObserve_EventsOfARunnerAddUp(t *testing.T) {
	t.Parallel()
	done := make(chan struct{}, 100)
	p, err := stages.New("video",
		stages.Stage{
			Name: "first", Slots: 2, MaxAttempts: 3, Backoff: stages.Backoff{Base: time.Millisecond},
			Work: func(_ context.Context, j *stages.Job) (any, error) {
				j.Progress(stages.Progress{Percent: 50, Speed: 2})
				if j.Attempt == 1 {
					return nil, errors.New("first attempt")
				}
				return nil, nil
			},
		},
		stages.Stage{
			Name: "second", Needs: []string{"first"}, Slots: 2,
			Work: func(context.Context, *stages.Job) (any, error) { return nil, nil },
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	g := p.Graph()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	st := store.New(pool, g)
	const tasks = 10
	for range tasks {
		if _, err := st.Submit(t.Context(), store.Submission{Source: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	m := New(Options{
		Graph: g, Slots: map[string]int{"first": 2, "second": 2}, Database: NewDatabase(pool, g),
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- stages.Runner{Pool: pool, Pipeline: p, Observe: func(e stages.Event) {
			m.Observe(e)
			if e.Kind == stages.StageCompleted && e.Stage == "second" {
				done <- struct{}{}
			}
		}}.Run(ctx)
	}()
	for range tasks {
		<-done
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	want(t, m, tasks, "stage_attempts_total", "stage", "first", "outcome", "failed")
	want(t, m, tasks, "stage_attempts_total", "stage", "first", "outcome", "completed")
	want(t, m, tasks, "stage_attempts_total", "stage", "second", "outcome", "completed")
	want(t, m, tasks, "retries_total", "stage", "first")
	want(t, m, 2*tasks, "stage_queue_wait_seconds", "stage", "first")
	want(t, m, 2*tasks, "ffmpeg_speed_ratio")
	for _, stage := range g.Stages() {
		want(t, m, 0, "worker_slots", "stage", stage, "state", "busy")
		want(t, m, 0, "tasks", "stage", stage, "status", "ready")
	}
	want(t, m, 0, "workers", "state", "idle")
}
