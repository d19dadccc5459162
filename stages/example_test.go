package stages_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Audio is the result of a stage in these examples.
type Audio struct{ Seconds int }

func measure(context.Context, *stages.Job) (any, error) { return Audio{Seconds: 90}, nil }

// exampleRun submits one task and runs the pipeline until the stage is completed or dead.
func exampleRun(p *stages.Pipeline, submission store.Submission, last string) {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	st := store.New(pool, p.Graph())
	check(st.Migrate(ctx))
	check(st.Submit(ctx, submission))
	runner := stages.Runner{Pool: pool, Pipeline: p, Observe: func(e stages.Event) {
		if e.Stage == last && (e.Kind == stages.StageCompleted || e.Kind == stages.StageDead) {
			stop()
		}
	}}
	if err := runner.Run(ctx); err != nil {
		panic(err)
	}
}

func check[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A pipeline is a set of named stages. Each may need others; stages that need the same ones
// run in parallel.
func Example() {
	pipeline, err := stages.New("podcast",
		stages.Stage{Name: "fetch", Work: measure, MaxAttempts: 5},
		stages.Stage{Name: "speech", Needs: []string{"fetch"}, Work: measure, Slots: 2},
		stages.Stage{Name: "music", Needs: []string{"fetch"}, Work: measure},
		stages.Stage{
			Name: "mix", Needs: []string{"speech", "music"}, Work: func(_ context.Context, job *stages.Job) (any, error) {
				fmt.Println("mixing", job.Source)
				return nil, nil
			},
		},
	)
	if err != nil {
		panic(err)
	}
	exampleRun(pipeline, store.Submission{Source: "episode-1.wav"}, "mix")
	// Output: mixing episode-1.wav
}

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

// When its context is done, a Runner drains: it claims nothing more and lets attempts finish
// for up to the Grace.
func ExampleRunner_Run_drain() {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	ctx, stop := context.WithCancel(context.Background())
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "encode", Work: func(context.Context, *stages.Job) (any, error) {
			stop()                            // as a signal would do
			time.Sleep(10 * time.Millisecond) // the work goes on during the drain
			fmt.Println("the attempt finished")
			return nil, nil
		},
	}))
	st := store.New(pool, pipeline.Graph())
	check(st.Migrate(ctx))
	check(st.Submit(ctx, store.Submission{Source: "episode-1.wav"}))
	err := stages.Runner{Pool: pool, Pipeline: pipeline, Grace: time.Minute}.Run(ctx)
	fmt.Println("drained:", err)
	// Output:
	// the attempt finished
	// drained: <nil>
}

// A task that is cancelled ends the context of its attempts, on every host.
func ExampleErrCancelled() {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	ctx, stop := context.WithCancel(context.Background())
	started := make(chan store.ID, 1)
	pipeline := check(stages.New("podcast", stages.Stage{
		Name: "encode", Work: func(ctx context.Context, job *stages.Job) (any, error) {
			started <- job.Task
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
			stop()
			return nil, ctx.Err()
		},
	}))
	st := store.New(pool, pipeline.Graph())
	check(st.Migrate(ctx))
	check(st.Submit(ctx, store.Submission{Source: "episode-1.wav"}))
	go cancelWhenStarted(st, started)
	if err := (stages.Runner{Pool: pool, Pipeline: pipeline}).Run(ctx); err != nil {
		panic(err)
	}
	// Output: task was cancelled: claim was revoked
}

func cancelWhenStarted(st *store.Store, started <-chan store.ID) {
	if err := st.Cancel(context.Background(), <-started); err != nil {
		panic(err)
	}
}

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
