package stages_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Audio is the result of a stage in these examples.
type Audio struct{ Seconds int }

func measure(context.Context, *stages.Job) (any, error) { return Audio{Seconds: 90}, nil }

// exampleRun submits one task and runs the pipeline until the stage is completed or dead.
func exampleRun(p *stages.Pipeline, submission store.Submission, last string) {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	st := store.New(pool, p.Graph())
	check(st.Migrate(ctx))
	check(st.Submit(ctx, submission))
	runner := stages.Runner{Pool: pool, Pipeline: p, Observe: func(e stages.Event) {
		if e.Stage == last && (e.Kind == stages.StageCompleted || e.Kind == stages.StageDead) {
			stop()
		}
	}}
	if err := runner.Run(ctx); err != nil {
		panic(err)
	}
}

func check[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A pipeline is a set of named stages. Each may need others; stages that need the same ones
// run in parallel.
func Example() {
	pipeline, err := stages.New("podcast",
		stages.Stage{Name: "fetch", Work: measure, MaxAttempts: 5},
		stages.Stage{Name: "speech", Needs: []string{"fetch"}, Work: measure, Slots: 2},
		stages.Stage{Name: "music", Needs: []string{"fetch"}, Work: measure},
		stages.Stage{
			Name: "mix", Needs: []string{"speech", "music"}, Work: func(_ context.Context, job *stages.Job) (any, error) {
				fmt.Println("mixing", job.Source)
				return nil, nil
			},
		},
	)
	if err != nil {
		panic(err)
	}
	exampleRun(pipeline, store.Submission{Source: "episode-1.wav"}, "mix")
	// Output: mixing episode-1.wav
}
