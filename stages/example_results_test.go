package stages_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// A later stage reads the result of an earlier one, with its type.
func ExampleResult() {
	pipeline := check(stages.New("podcast",
		stages.Stage{Name: "measure", Work: measure},
		stages.Stage{
			Name: "describe", Needs: []string{"measure"}, Work: func(ctx context.Context, job *stages.Job) (any, error) {
				audio, err := stages.Result[Audio](ctx, job, "measure")
				if err != nil {
					return nil, err
				}
				fmt.Println(job.Source, "has", audio.Seconds, "seconds")
				return nil, nil
			},
		},
	))
	exampleRun(pipeline, store.Submission{Source: "episode-1.wav"}, "describe")
	// Output: episode-1.wav has 90 seconds
}
