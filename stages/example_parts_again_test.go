package stages_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// A join may ask for some parts again, and keep the others: here the second one, whose result is empty.
func ExampleDivideAgain() {
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "speech",
		Divide: func(context.Context, *stages.Job) ([]stages.Part, error) {
			return []stages.Part{{Spec: "small model"}, {Spec: "small model"}}, nil
		},
		Part: func(_ context.Context, job *stages.Job) (any, error) {
			model, err := stages.Spec[string](job)
			if model == "small model" && job.Part == 2 {
				return "", err
			}
			return fmt.Sprintf("words of part %d, by the %s", job.Part, model), err
		},
		Work: func(ctx context.Context, job *stages.Job) (any, error) {
			texts, err := stages.PartResults[string](ctx, job)
			if err != nil {
				return nil, err
			}
			if texts[1] == "" {
				return nil, stages.DivideAgain([]stages.Part{{Keep: true}, {Spec: "large model"}}, errors.New("part 2 has no words"))
			}
			fmt.Printf("%q, attempt %d\n", texts, job.Attempt)
			return nil, nil
		},
	}))
	exampleRun(pipeline, store.Submission{Source: "episode-1.wav"}, "speech")
	// Output: ["words of part 1, by the small model" "words of part 2, by the large model"], attempt 2
}
