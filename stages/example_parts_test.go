package stages_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// A stage with Divide is divided into parts, which any processes work on. When all are completed,
// Work joins their results.
func ExampleStage_parts() {
	type chapter struct{ From, To int }
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "speech",
		Divide: func(context.Context, *stages.Job) ([]stages.Part, error) {
			return []stages.Part{{Spec: chapter{0, 600}}, {Spec: chapter{600, 900}}}, nil
		},
		Part: func(_ context.Context, job *stages.Job) (any, error) {
			c, err := stages.Spec[chapter](job)
			return fmt.Sprintf("words from second %d to %d", c.From, c.To), err
		},
		Work: func(ctx context.Context, job *stages.Job) (any, error) {
			texts, err := stages.PartResults[string](ctx, job)
			fmt.Printf("%q\n", texts)
			return nil, err
		},
	}))
	exampleRun(pipeline, store.Submission{Source: "episode-1.wav"}, "speech")
	// Output: ["words from second 0 to 600" "words from second 600 to 900"]
}
