package stages_test

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/stages"
)

// Progress is shown in the list of workers, in events and on the dashboard. With
// Stage.Stall, an attempt that reports none is retried.
func ExampleJob_Progress() {
	work := func(_ context.Context, job *stages.Job) (any, error) {
		for percent := 0.0; percent <= 100; percent += 50 {
			job.Progress(stages.Progress{Percent: percent, Note: "encoding"})
		}
		return nil, nil
	}
	job := &stages.Job{OnProgress: func(p stages.Progress) { fmt.Println(p.Percent, p.Note) }}
	_, _ = work(context.Background(), job)
	// Output:
	// 0 encoding
	// 50 encoding
	// 100 encoding
}
