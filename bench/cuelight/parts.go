package cuelight

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// partTimes returns how long a process takes for each of n tasks of one stage, and for each of n parts of
// one task, both without work. It measures each twice, in turns. The division and the join are included; the
// submission of a task, which is what the division is for a part, is a time of its own.
func partTimes(ctx context.Context, url string, n, slots int) (map[string]time.Duration, error) {
	times := make(map[string]time.Duration)
	for i, name := range []string{"task", "part", "part", "task"} {
		parts := 0
		if name == "part" {
			parts = n
		}
		submission, took, err := drainUnits(ctx, url, fmt.Sprintf("units%d", i), n, parts, slots)
		if err != nil {
			return nil, fmt.Errorf("drain each %s: %w", name, err)
		}
		times[name] += took / time.Duration(2*n)
		times[name+" submission"] += submission / time.Duration(2*n)
	}
	return times, nil
}

// drainUnits drains n tasks, or one task with that many parts. It returns how long their submission took, and how long
// they took since the first claim. The tables are new.
func drainUnits(ctx context.Context, url, pipeline string, n, parts, slots int) (submission, took time.Duration, err error) {
	stage := stages.Stage{Name: "work", Slots: slots, Work: nothing}
	tasks := n
	if parts > 0 {
		tasks = 1
		stage.Part = nothing
		stage.Divide = func(context.Context, *stages.Job) ([]stages.Part, error) { return make([]stages.Part, parts), nil }
	}
	p, err := stages.New(pipeline, stage)
	if err != nil {
		return 0, 0, err
	}
	err = harness.WithPool(ctx, url, 0, func(pool *pgxpool.Pool) error {
		s := store.New(pool, p.Graph())
		if _, err := s.Migrate(ctx); err != nil {
			return err
		}
		subs := make([]store.Submission, tasks)
		for i := range subs {
			subs[i].Source = "bench"
		}
		started := time.Now()
		if _, err := s.SubmitAll(ctx, subs); err != nil {
			return err
		}
		submission = time.Since(started)
		took, err = runUnits(ctx, pool, p, tasks)
		return err
	})
	return submission, took, err
}

// runUnits runs until so many tasks are completed.
func runUnits(ctx context.Context, pool *pgxpool.Pool, p *stages.Pipeline, tasks int) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var first, last time.Time
	completed := 0
	err := stages.Runner{
		Pool: pool, Pipeline: p, Wakes: notify.New(pool, notify.Options{Channels: p.Channels()}),
		Observe: func(e stages.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case stages.StageStarted:
				if first.IsZero() {
					first = time.Now()
				}
			case stages.StageCompleted:
				if completed++; completed == tasks {
					last = time.Now()
					stop()
				}
			}
		},
	}.Run(ctx)
	if err == nil && last.IsZero() {
		err = fmt.Errorf("%d of %d tasks are completed: %w", completed, tasks, context.Cause(ctx))
	}
	return last.Sub(first), err
}
