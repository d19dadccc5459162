package stages_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// A task that is cancelled ends the context of its attempts, on every host.
func ExampleErrCancelled() {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	ctx, stop := context.WithCancel(context.Background())
	started := make(chan store.ID, 1)
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "encode", Work: func(ctx context.Context, job *stages.Job) (any, error) {
			started <- job.Task
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
			stop()
			return nil, ctx.Err()
		},
	}))
	st := store.New(pool, pipeline.Graph())
	check(st.Migrate(ctx))
	check(st.Submit(ctx, store.Submission{Source: "episode-1.wav"}))
	go cancelWhenStarted(st, started)
	if err := (stages.Runner{Pool: pool, Pipeline: pipeline}).Run(ctx); err != nil {
		panic(err)
	}
	// Output: task was cancelled: claim was revoked
}

func cancelWhenStarted(st *store.Store, started <-chan store.ID) {
	if err := st.Cancel(context.Background(), <-started); err != nil {
		panic(err)
	}
}
