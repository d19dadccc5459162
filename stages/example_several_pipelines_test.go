package stages_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Several pipelines share a database, and a process. Each has tables and a Runner of its own.
func ExampleRunner_severalPipelines() {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	var running sync.WaitGroup
	for _, name := range []string{"podcast", "newsletter"} {
		ctx, stop := context.WithCancel(context.Background())
		pipeline := check(stages.New(name, stages.Stage{
			Name: "send", Work: func(_ context.Context, job *stages.Job) (any, error) {
				fmt.Println(job.Source)
				stop()
				return nil, nil
			},
		}))
		st := store.New(pool, pipeline.Graph())
		check(st.Migrate(ctx))
		check(st.Submit(ctx, store.Submission{Source: name + " of today"}))
		running.Go(func() {
			if err := (stages.Runner{Pool: pool, Pipeline: pipeline}).Run(ctx); err != nil {
				panic(err)
			}
		})
	}
	running.Wait()
	// Unordered output:
	// podcast of today
	// newsletter of today
}
