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

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/peer"
)

// version is that in go.mod.
const version = "River v0.51.0, riverpgxv5"

const (
	tunedCooldown     = time.Millisecond
	tunedPollInterval = 20 * time.Millisecond
	tunedSettings     = "; FetchCooldown 1 ms, FetchPollInterval 20 ms, a queue per stage, 20 connections"
)

// Tx returns River with the next jobs inserted in the completing transaction.
func Tx() harness.System {
	return config{tx: true, cooldown: tunedCooldown, pollInterval: tunedPollInterval}.system("river_tx",
		"JobCompleteTx and InsertManyTx in one transaction"+tunedSettings)
}

// Fast returns River with the next jobs inserted before it completes this one.
func Fast() harness.System {
	return config{cooldown: tunedCooldown, pollInterval: tunedPollInterval}.system("river_fast",
		"InsertMany, then completion in bulk, a crash can repeat a stage"+tunedSettings)
}

// Default returns Fast with River's default settings for fetching.
func Default() harness.System {
	return config{}.system("river_default",
		"as river_fast, FetchCooldown 100 ms, FetchPollInterval 1 s; a queue per stage, 20 connections")
}

// config is what differs between the forms.
type config struct {
	tx                     bool
	cooldown, pollInterval time.Duration // 0 for River's defaults
}

func (c config) system(name, settings string) harness.System {
	return harness.System{
		Name: name, Settings: version + ": " + settings, Setup: setUp, Preload: preload,
		Start: func(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
			return start(ctx, url, c, o)
		},
	}
}

const connections = 20

// setUp creates River's tables and the one that joins two stages.
func setUp(ctx context.Context, url string) error {
	var errs harness.ErrorList
	err := harness.WithPool(ctx, url, connections, func(pool *pgxpool.Pool) error {
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: errs.Logger()})
		if err == nil {
			_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		}
		if err == nil {
			_, err = pool.Exec(ctx, peer.ArrivalsTable)
		}
		return err
	})
	if err := errors.Join(err, errs.Err()); err != nil {
		return fmt.Errorf("create River's tables: %w", err)
	}
	return nil
}

// preload inserts tasks while no worker runs.
func preload(ctx context.Context, url string, first int64, n int) error {
	var errs harness.ErrorList
	err := harness.WithPool(ctx, url, connections, func(pool *pgxpool.Pool) error {
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
		params = append(params, jobs(first+int64(i), harness.Ingest)...)
	}
	if _, err := client.InsertManyFast(ctx, params); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}

// jobArgs are the arguments of River's jobs.
type jobArgs struct {
	Task  int64         `json:"task"`
	Stage harness.Stage `json:"stage"`
}

// Kind is the name of the jobs in River's tables.
func (jobArgs) Kind() string { return "stage" }

// jobs returns a job for each of the stages.
func jobs(task int64, stages ...harness.Stage) []river.InsertManyParams {
	params := make([]river.InsertManyParams, len(stages))
	for i, s := range stages {
		params[i] = river.InsertManyParams{
			Args: jobArgs{Task: task, Stage: s}, InsertOpts: &river.InsertOpts{Queue: s.String()},
		}
	}
	return params
}
