// Command podcast is a complete program that embeds Cuelight. Its two pipelines are in one
// database, next to its other tables.
//
//	DATABASE_URL=postgres://… go run .
//
// The first pipeline is a diamond of seven stages:
//
//	fetch ──▶ clean ──┬──▶ speech ───┐
//	                  ├──▶ music  ───┼──▶ mix ──▶ announce
//	                  └──▶ chapters ─┘
//
// The second has one stage, which the last stage of the first submits to.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
}

// Audio is the result of fetch, which later stages read.
type Audio struct {
	File    string
	Seconds float64
}

func run(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()

	letters, err := newLetters(pool)
	if err != nil {
		return err
	}
	podcasts, err := newPodcasts(pool, letters.store)
	if err != nil {
		return err
	}
	for _, p := range []pipeline{letters, podcasts} {
		if _, err := p.store.Migrate(ctx); err != nil {
			return err
		}
	}

	// Everything long-lived is a Run(ctx) that returns when ctx is done.
	ctx, done := context.WithCancel(ctx)
	defer done()
	var g errgroup.Group
	for _, p := range []pipeline{letters, podcasts} {
		runner := stages.Runner{Pool: pool, Pipeline: p.stages, Observe: p.observe(done)}
		g.Go(func() error { return runner.Run(ctx) })
	}

	if err := submitEpisode(ctx, pool, podcasts.store); err != nil {
		done()
		return errors.Join(err, g.Wait())
	}
	return g.Wait()
}

// submitEpisode adds an episode and its task in one transaction: both exist afterwards, or
// neither does.
func submitEpisode(ctx context.Context, pool *pgxpool.Pool, podcasts *store.Store) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// … insert into episodes …, in the same transaction
		_, err := podcasts.WithTx(tx).Submit(ctx, store.Submission{
			Source:    "episode-1.wav",
			RequestID: "episode-1", // submitting it again changes nothing
		})
		return err
	})
}

// pipeline is a Store and the stages that work on it.
type pipeline struct {
	store  *store.Store
	stages *stages.Pipeline
	last   string // the stage that ends this program
}

func newPodcasts(pool *pgxpool.Pool, letters *store.Store) (pipeline, error) {
	p, err := stages.New("podcast",
		stages.Stage{Name: "fetch", Work: fetch, MaxAttempts: 5},
		stages.Stage{Name: "clean", Needs: []string{"fetch"}, Work: describe},
		stages.Stage{Name: "speech", Needs: []string{"clean"}, Work: describe, Slots: 2},
		stages.Stage{Name: "music", Needs: []string{"clean"}, Work: describe},
		stages.Stage{Name: "chapters", Needs: []string{"clean"}, Work: describe},
		stages.Stage{Name: "mix", Needs: []string{"speech", "music", "chapters"}, Work: describe},
		stages.Stage{Name: "announce", Needs: []string{"mix"}, Work: func(ctx context.Context, job *stages.Job) (any, error) {
			// Work may run twice; the request id makes the second submission change nothing.
			_, err := letters.Submit(ctx, store.Submission{Source: job.Source, RequestID: "announce " + job.Task.String()})
			return nil, err
		}},
	)
	if err != nil {
		return pipeline{}, err
	}
	return pipeline{store: store.New(pool, p.Graph()), stages: p}, nil
}

func newLetters(pool *pgxpool.Pool) (pipeline, error) {
	p, err := stages.New("letters", stages.Stage{Name: "send", Work: send})
	if err != nil {
		return pipeline{}, err
	}
	return pipeline{store: store.New(pool, p.Graph()), stages: p, last: "send"}, nil
}

func fetch(_ context.Context, job *stages.Job) (any, error) {
	if job.Source == "" {
		return nil, stages.Permanent(errors.New("nothing to fetch")) // no further attempt would help
	}
	job.Progress(stages.Progress{Percent: 50, Note: "downloading"})
	return Audio{File: job.Source, Seconds: 42}, nil
}

// describe stands for real work. It reads what fetch returned.
func describe(ctx context.Context, job *stages.Job) (any, error) {
	audio, err := stages.Result[Audio](ctx, job, "fetch")
	if err != nil {
		return nil, err
	}
	return fmt.Sprintf("%s of %s (%.0f s)", job.Stage, audio.File, audio.Seconds), nil
}

func send(_ context.Context, job *stages.Job) (any, error) {
	fmt.Println("news about", job.Source)
	return nil, nil
}

// observe prints completed stages and errors, and calls done after the last stage.
func (p pipeline) observe(done func()) func(stages.Event) {
	return func(e stages.Event) {
		switch {
		case e.Kind == stages.StageCompleted:
			fmt.Println("completed", e.Stage)
			if e.Stage == p.last {
				done()
			}
		case e.Err != nil:
			fmt.Println(e.Kind, e.Stage, e.Err)
		}
	}
}
