package stages_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// The parameters of a task are a JSON object, in Go a type of the pipeline's own.
func ExampleJob_params() {
	type params struct {
		Bitrate int `json:"bitrate"`
	}
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "encode", Work: func(_ context.Context, job *stages.Job) (any, error) {
			var p params
			if err := json.Unmarshal(job.Params, &p); err != nil {
				return nil, stages.Permanent(err)
			}
			fmt.Printf("%s at %d kbit/s\n", job.Source, p.Bitrate)
			return nil, nil
		},
	}))
	exampleRun(pipeline, store.Submission{Source: "episode-1.wav", Params: check(json.Marshal(params{Bitrate: 96}))}, "encode")
	// Output: episode-1.wav at 96 kbit/s
}
