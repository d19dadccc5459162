package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
)

// What a worker process is told.
const (
	addressEnv = "CUELIGHT_CHAOS_ADDRESS" // of its database
	journalEnv = "CUELIGHT_CHAOS_JOURNAL" // its file
	hostEnv    = "CUELIGHT_CHAOS_HOST"    // what to call the host, where it has one of its own
)

// dawdlingFile, in the directory of the journals, lists tasks.
const dawdlingFile = "dawdling"

// atWork is what a worker says on standard output when it is registered.
const atWork = "at work"

// hearingKind and deafKind are events of the listener; the others are the
// Runner's.
const (
	hearingKind = "hearing"
	deafKind    = "not_hearing"
)

// connectWithin is how long one try to connect may take, as in cuelight itself.
const connectWithin = 10 * time.Second

// waitForEnd returns when the other end of standard input is closed, which also
// happens when the program that started this one is killed.
func waitForEnd() {
	signal.Ignore(os.Interrupt) // a Ctrl-C is for that program
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// workerMain works until it is told to end, and then drains.
func workerMain() error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		waitForEnd()
		cancel()
	}()
	return serve(ctx, os.Getenv(addressEnv), os.Getenv(journalEnv))
}

// serve is what `cuelight serve` does, without all that surrounds it.
func serve(ctx context.Context, address, file string) error {
	j, err := openJournal(file)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return err
	}
	config.ConnConfig.ConnectTimeout = connectWithin
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	p := newPipeline(&laborer{j, filepath.Join(filepath.Dir(file), dawdlingFile)})
	listener := notify.New(pool, notify.Options{Channels: p.Channels(), OnChange: j.listening})
	runner := stages.Runner{Pool: pool, Pipeline: p, Wakes: listener, Observe: j.observe}
	return runner.Run(ctx)
}

func (j *journal) listening(connected bool, err error) {
	kind := hearingKind
	if !connected {
		kind = deafKind
	}
	j.write(entry{What: eventTold, How: kind, Why: progresslog.Brief(err)})
}

// observe writes down what the Runner tells, but for what work says itself.
func (j *journal) observe(e stages.Event) {
	if e.Kind == stages.StageStarted || e.Kind == stages.StageProgress {
		return
	}
	j.write(entry{
		What: eventTold, How: string(e.Kind), Task: e.Task, Stage: e.Stage, Attempt: e.Attempt,
		Worker: e.Worker, Count: e.Count, Why: progresslog.Brief(e.Err),
	})
	switch e.Kind {
	case stages.WorkerStarted:
		fmt.Println(atWork)
	case stages.DatabaseLost:
		fmt.Println("has no database:", progresslog.Brief(e.Err))
	case stages.DatabaseBack:
		fmt.Println("has its database back")
	case stages.WorkerLost:
		fmt.Println("gave up a worker")
	}
}
