package stages_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Permanent makes a stage dead at once, because a retry cannot help.
func ExamplePermanent() {
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "fetch", Work: func(_ context.Context, job *stages.Job) (any, error) {
			fmt.Println("attempt", job.Attempt)
			return nil, stages.Permanent(errors.New("not an audio file"))
		},
	}))
	exampleRun(pipeline, store.Submission{Source: "notes.txt"}, "fetch")
	// Output: attempt 1
}
