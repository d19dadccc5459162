package scenario

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Parts compares the time that each of n parts of one task takes with that of each of n tasks of one stage, all without work: "parts".
// It records how many times as long a part takes, without and with the submission of the tasks, which is what the division
// is for a part. The division and the join are included. It measures each twice, in turns.
func Parts(n int) Scenario {
	return Scenario{Names: []string{"parts"}, Measure: func(ctx context.Context, t *Trial) error {
		submission, took := map[string]float64{}, map[string]float64{} // ms
		for i, name := range []string{"task", "part", "part", "task"} {
			s, d, err := t.drainUnits(ctx, fmt.Sprintf("units%d", i), n, name == "part")
			if err != nil {
				return fmt.Errorf("drain each %s: %w", name, err)
			}
			submission[name] += report.Milliseconds(s) / float64(2*n)
			took[name] += report.Milliseconds(d) / float64(2*n)
		}
		t.RecordValue("parts", fmt.Sprintf("each task of %d", n), "ms", took["task"])
		t.RecordValue("parts", fmt.Sprintf("each part of %d", n), "ms", took["part"])
		t.RecordValue("parts", fmt.Sprintf("each task submission of %d", n), "ms", submission["task"])
		t.RecordValue("parts", "ratio", "times", took["part"]/took["task"])
		t.RecordValue("parts", "ratio with submission", "times",
			(took["part"]+submission["part"])/(took["task"]+submission["task"]))
		return nil
	}}
}

// drainUnits drains n tasks, or n parts of one task, of a pipeline with tables of its own. It returns how long
// their submission took, and how long they took since the first claim.
func (t *Trial) drainUnits(ctx context.Context, pipeline string, n int, asParts bool) (submission, took time.Duration, err error) {
	nothing := func(context.Context, *stages.Job) (any, error) { return nil, nil }
	stage := stages.Stage{Name: "work", Slots: t.Slots, Work: nothing}
	tasks := n
	if asParts {
		tasks = 1
		stage.Part = nothing
		stage.Divide = func(context.Context, *stages.Job) ([]stages.Part, error) { return make([]stages.Part, n), nil }
	}
	p, err := stages.New(pipeline, stage)
	if err != nil {
		return 0, 0, err
	}
	err = system.WithPool(ctx, t.URL, 0, func(pool *pgxpool.Pool) error {
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
func runUnits(ctx context.Context, pool *pgxpool.Pool, p *stages.Pipeline, tasks int) (took time.Duration, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var completed atomic.Int64
	var first, last atomic.Pointer[time.Time]
	err = stages.Runner{
		Pool: pool, Pipeline: p, Wakes: notify.New(pool, notify.Options{Channels: p.Channels()}),
		Observe: func(e stages.Event) {
			now := time.Now()
			if e.Kind == stages.StageStarted {
				first.CompareAndSwap(nil, &now)
			}
			if e.Kind == stages.StageCompleted && completed.Add(1) == int64(tasks) {
				last.Store(&now)
				stop()
			}
		},
	}.Run(ctx)
	if err == nil && last.Load() == nil {
		err = fmt.Errorf("%d of %d tasks are completed: %w", completed.Load(), tasks, context.Cause(ctx))
	}
	if err != nil {
		return 0, err
	}
	return last.Load().Sub(*first.Load()), nil
}
