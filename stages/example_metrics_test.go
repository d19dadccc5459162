package stages_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Observe is called with everything that happens in a Runner, for metrics and logs.
func ExampleRunner_observe() {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	pipeline := check(stages.New("podcast", stages.Stage{Name: "measure", Work: measure}))
	ctx, stop := context.WithCancel(context.Background())
	st := store.New(pool, pipeline.Graph())
	check(st.Migrate(ctx))
	check(st.SubmitAll(ctx, []store.Submission{{Source: "episode-1.wav"}, {Source: "episode-2.wav"}}))
	var completed atomic.Int32
	runner := stages.Runner{Pool: pool, Pipeline: pipeline, Observe: func(e stages.Event) {
		if e.Kind == stages.StageCompleted && completed.Add(1) == 2 { // e.Duration and e.Waited are for histograms
			stop()
		}
	}}
	err := runner.Run(ctx)
	fmt.Println(completed.Load(), err)
	// Output: 2 <nil>
}
