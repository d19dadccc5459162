package stages_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// RetryAfter names the time to the next attempt, as a server does that is overloaded. Postpone does the same without counting
// the attempt.
func ExampleRetryAfter() {
	busy := errors.New("503 Service Unavailable")
	calls := 0
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "fetch", MaxAttempts: 2, Work: func(_ context.Context, job *stages.Job) (any, error) {
			calls++
			fmt.Println("call", calls, "attempt", job.Attempt)
			switch calls {
			case 1:
				return nil, stages.Postpone(time.Millisecond, busy)
			case 2:
				return nil, stages.RetryAfter(time.Millisecond, busy)
			}
			return nil, nil
		},
	}))
	exampleRun(pipeline, store.Submission{Source: "https://example.org/episode-1.wav"}, "fetch")
	// Output:
	// call 1 attempt 1
	// call 2 attempt 1
	// call 3 attempt 2
}
