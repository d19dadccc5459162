package stages_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cuelight/cuelight/stages"
)

// Work is a function: a test calls it with a Job of its own, without a database.
func ExampleJob() {
	describe := func(ctx context.Context, job *stages.Job) (any, error) {
		audio, err := stages.Result[Audio](ctx, job, "measure")
		return fmt.Sprintf("%s: %d s", job.Source, audio.Seconds), err
	}
	result, err := describe(context.Background(), &stages.Job{
		Source: "episode-1.wav",
		Results: func(_ context.Context, stage string) (json.RawMessage, error) {
			return json.Marshal(Audio{Seconds: 90})
		},
	})
	fmt.Println(result, err)
	// Output: episode-1.wav: 90 s <nil>
}
