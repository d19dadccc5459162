// Package river has River (github.com/riverqueue/river), the Go queue on PostgreSQL, in
// three forms. docs/performance.md says how they are set up, and why.
//
// River's free version has jobs and no graph. Each stage of each task is a job, and its worker inserts the next jobs.
// Assemble waits for two stages and must be inserted once. Both set their bit in the task's
// row of a small table: the one that then sees both bits inserts assemble. A unique job cannot do this: it
// would start with the first of the two. A count in place of the bits would be wrong after a
// repeated job.
//
// Fast and Default report Completed when the work has returned. River's completer follows
// within 250 ms and nothing waits for it, which favours them.
package river

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/cuelight/cuelight/bench/system"
)

// The forms of River.
var (
	// Tx completes a job and inserts the next ones in one transaction: a crash can neither lose nor repeat a stage.
	Tx system.System = form{name: "river_tx", tx: true, cooldown: tunedCooldown, pollInterval: tunedPollInterval,
		settings: "JobCompleteTx and InsertManyTx in one transaction" + tunedSettings}
	// Fast inserts the next jobs; River completes the job later, together with others. A crash in between repeats both.
	Fast system.System = form{name: "river_fast", cooldown: tunedCooldown, pollInterval: tunedPollInterval,
		settings: "InsertMany, then completion in bulk, a crash can repeat a stage" + tunedSettings}
	// Default is Fast with River's default settings for fetching.
	Default system.System = form{name: "river_default",
		settings: "as river_fast, FetchCooldown 100 ms, FetchPollInterval 1 s; a queue per stage, 20 connections"}
)

const (
	version           = "River v0.51.0, riverpgxv5" // that in go.mod
	tunedCooldown     = time.Millisecond
	tunedPollInterval = 20 * time.Millisecond
	tunedSettings     = "; FetchCooldown 1 ms, FetchPollInterval 20 ms, a queue per stage, 20 connections"
	connections       = 20
)

// form is one of them.
type form struct {
	name, settings         string
	tx                     bool
	cooldown, pollInterval time.Duration // 0 for River's defaults
}

// Name is that of the figures.
func (f form) Name() string { return f.name }

// Settings describes the form.
func (f form) Settings() string { return version + ": " + f.settings }

// arrivalsTable joins transcode and metadata: each sets its bit in
// the task's row, and the second one starts assemble. That update finds room on the page.
const arrivalsTable = `create table arrivals (task bigint primary key, done int not null) with (fillfactor = 80)`

// SetUp creates River's tables and the one that joins two stages.
func (form) SetUp(ctx context.Context, url string) error {
	var errs system.FirstError
	err := system.WithPool(ctx, url, connections, func(pool *pgxpool.Pool) error {
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: errs.Logger()})
		if err == nil {
			_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		}
		if err == nil {
			_, err = pool.Exec(ctx, arrivalsTable)
		}
		return err
	})
	if err := errors.Join(err, errs.Err()); err != nil {
		return fmt.Errorf("create River's tables: %w", err)
	}
	return nil
}

// Preload inserts tasks while no worker runs.
func (form) Preload(ctx context.Context, url string, first int64, n int) error {
	var errs system.FirstError
	err := system.WithPool(ctx, url, connections, func(pool *pgxpool.Pool) error {
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: errs.Logger()})
		if err != nil {
			return err
		}
		return insertAll(ctx, client, first, n)
	})
	return errors.Join(err, errs.Err())
}

// insertAll inserts the first jobs of tasks in one transaction, with COPY.
func insertAll(ctx context.Context, client *river.Client[pgx.Tx], first int64, n int) error {
	params := make([]river.InsertManyParams, 0, n)
	for i := range n {
		params = append(params, jobs(first+int64(i), system.Ingest)...)
	}
	if _, err := client.InsertManyFast(ctx, params); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}

// jobArgs are the arguments of River's jobs.
type jobArgs struct {
	Task  int64        `json:"task"`
	Stage system.Stage `json:"stage"`
}

// Kind is the name of the jobs in River's tables.
func (jobArgs) Kind() string { return "stage" }

// jobs returns a job for each of the stages.
func jobs(task int64, stages ...system.Stage) []river.InsertManyParams {
	params := make([]river.InsertManyParams, len(stages))
	for i, s := range stages {
		params[i] = river.InsertManyParams{
			Args: jobArgs{Task: task, Stage: s}, InsertOpts: &river.InsertOpts{Queue: s.String()},
		}
	}
	return params
}
