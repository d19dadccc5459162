// Package cuelight is the contestant that all the others are measured beside.
//
// It works as a program that embeds Cuelight does: the graph of the built-in
// pipeline with stages that do nothing, one Runner with its listener, and a pool
// as pgxpool makes it. History, fencing and retries are on, since they cannot be
// turned off. Submissions come from a pool of their own, as they do from the
// program that submits, which in practice is another one.
package cuelight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// Contestant is Cuelight. The zero value is ready.
type System struct{}

// Name is its word in results.
func (System) Name() string { return "cuelight" }

// submitters is how many submissions can be on their way at once.
const submitters = 16

// Settings is its setting, for people.
func (System) Settings() string {
	return fmt.Sprintf("this commit, schema version %d; one Runner and one notify.Listener per process, all settings at their defaults, "+
		"pgxpool's default of connections, a further pool of %d for submissions; bulk submissions by Store.SubmitAll",
		store.SchemaVersion, submitters)
}

// Setup makes the tables.
func (System) Setup(ctx context.Context, url string) error {
	return withPool(ctx, url, func(pool *pgxpool.Pool) error {
		_, err := store.New(pool, store.Video()).Migrate(ctx)
		return err
	})
}

// Fill submits tasks which nobody works on yet.
func (System) Preload(ctx context.Context, url string, first int64, n int) error {
	return withPool(ctx, url, func(pool *pgxpool.Pool) error { return submitAll(ctx, pool, first, n) })
}

// Channels are those on which the workers are notified.
func (System) Channels() []string {
	g := store.Video()
	channels := []string{g.RecallChannel()}
	for _, s := range g.Stages() {
		channels = append(channels, g.Channel(s))
	}
	return channels
}

func withPool(ctx context.Context, url string, do func(*pgxpool.Pool) error) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return do(pool)
}

// submission is the task of a number.
func submission(task int64) store.Submission {
	return store.Submission{Source: strconv.FormatInt(task, 10)}
}

// atOnce is how many tasks one call of SubmitAll has.
const atOnce = 10_000

func submitAll(ctx context.Context, pool *pgxpool.Pool, first int64, n int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		s := store.New(pool, store.Video()).WithTx(tx)
		for ; n > 0; first, n = first+atOnce, n-atOnce {
			subs := make([]store.Submission, min(n, atOnce))
			for i := range subs {
				subs[i] = submission(first + int64(i))
			}
			if _, err := s.SubmitAll(ctx, subs); err != nil {
				return err
			}
		}
		return nil
	})
}

// pipeline is the graph with stages that wait, and tell when they begin and end.
func pipeline(o harness.Options, numbers *numbers) (*stages.Pipeline, error) {
	all := make([]stages.Stage, harness.StageCount)
	for i := range all {
		s := harness.Stage(i)
		all[i] = stages.Stage{Name: s.String(), Workers: slots(o, s), Work: work(o, s, numbers)}
		for _, need := range s.Needs() {
			all[i].Needs = append(all[i].Needs, need.String())
		}
	}
	return video.Pipeline(all...)
}

// slots is how many of a stage there are; -1 is for none.
func slots(o harness.Options, s harness.Stage) int {
	switch {
	case o.Stages != nil && !slices.Contains(o.Stages, s):
		return -1
	case slices.Contains(o.SingleSlot, s):
		return 1
	}
	return o.Slots
}

func work(o harness.Options, s harness.Stage, numbers *numbers) stages.Work {
	observe := o.Observe
	return func(ctx context.Context, job *stages.Job) (any, error) {
		if observe == nil {
			return nil, wait(ctx, o.WorkTime)
		}
		began := time.Now()
		task, err := strconv.ParseInt(job.Source, 10, 64)
		if err != nil {
			return nil, stages.Permanent(err)
		}
		numbers.put(job.Task, task)
		observe(harness.Observation{Task: task, Stage: s, Kind: harness.Started, At: began})
		if err := wait(ctx, o.WorkTime); err != nil {
			return nil, err
		}
		observe(harness.Observation{Task: task, Stage: s, Kind: harness.Ended, At: time.Now()})
		return nil, nil
	}
}

func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errStopped is for a crew that ended before it was at work.
var errStopped = errors.New("it stopped at once")
