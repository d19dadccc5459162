package stages_test

import (
	"context"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// When its context is done, a Runner drains: it claims nothing more and lets attempts finish
// for up to the Grace.
func ExampleRunner_Run_drain() {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	ctx, stop := context.WithCancel(context.Background())
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "encode", Work: func(context.Context, *stages.Job) (any, error) {
			stop()                            // as a signal would do
			time.Sleep(10 * time.Millisecond) // the work goes on during the drain
			fmt.Println("the attempt finished")
			return nil, nil
		},
	}))
	st := store.New(pool, pipeline.Graph())
	check(st.Migrate(ctx))
	check(st.Submit(ctx, store.Submission{Source: "episode-1.wav"}))
	err := stages.Runner{Pool: pool, Pipeline: pipeline, Grace: time.Minute}.Run(ctx)
	fmt.Println("drained:", err)
	// Output:
	// the attempt finished
	// drained: <nil>
}
