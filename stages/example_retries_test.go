package stages_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// A failed attempt is retried after the stage's Backoff, up to MaxAttempts.
func ExampleStage_retries() {
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "fetch", MaxAttempts: 3, Backoff: stages.Backoff{Base: time.Millisecond},
		Work: func(_ context.Context, job *stages.Job) (any, error) {
			fmt.Println("attempt", job.Attempt)
			if job.Attempt < 3 {
				return nil, errors.New("connection reset")
			}
			return nil, nil
		},
	}))
	exampleRun(pipeline, store.Submission{Source: "https://example.org/episode-1.wav"}, "fetch")
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}
