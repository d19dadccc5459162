package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
)

// workerEnv makes this program a worker, and coordinatorEnv a coordinator. They hold a childConfig as JSON.
const (
	workerEnv      = "CUELIGHT_CHAOS_WORKER"
	coordinatorEnv = "CUELIGHT_CHAOS_COORDINATOR"
)

// childConfig is what a process is started with. A coordinator has only the first field.
type childConfig struct {
	Address     string // URL of its database; "" for a remote worker
	Coordinator string // URL of the coordinators of a remote worker
	Key         string // of a remote worker
	LogFile     string
	Keep        time.Duration // of finished and dead tasks; 0: for ever
}

// workerMain is the main function of a worker process. It works until its standard input ends, which
// also happens when its parent is killed, and then drains.
func workerMain(c childConfig) error {
	ctx := untilInputEnds()
	log, err := openLogFile(c.LogFile)
	if err != nil {
		return err
	}
	runner := stages.Runner{Pipeline: newPipeline(log), Observe: log.writeEvent}
	if c.Coordinator == "" {
		return work(ctx, c, log, runner)
	}
	// As `cuelight work` does.
	client, err := remote.NewClient(remote.ClientOptions{URL: c.Coordinator, Key: c.Key, Graph: graph()})
	if err != nil {
		return err
	}
	runner.Backend, runner.Wakes = client.Backend(), client.Wakes()
	runner.Capabilities = json.RawMessage(`{"labels": ["` + remoteLabel + `"]}`)
	return runner.Run(ctx)
}

// untilInputEnds returns a context that is done when the standard input ends.
func untilInputEnds() context.Context {
	signal.Ignore(os.Interrupt) // a Ctrl-C is for the parent
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// work runs the pipeline as `cuelight serve` does.
func work(ctx context.Context, c childConfig, log *logWriter, runner stages.Runner) error {
	pool, err := connect(ctx, c.Address)
	if err != nil {
		return err
	}
	defer pool.Close()
	runner.Pool = pool
	runner.Retention = &stages.Retention{
		KeepFinished: c.Keep, KeepDead: c.Keep,
		Unpublish: log.removal(removedPublished), RemoveFiles: log.removal(removedFiles),
	}
	runner.Wakes = notify.New(pool, notify.Options{Channels: runner.Pipeline.Channels(), OnChange: log.writeListener})
	return runner.Run(ctx)
}

// coordinatorMain is the main function of a coordinator process. It serves remote workers until its
// standard input ends.
func coordinatorMain(c childConfig) error {
	ctx := untilInputEnds()
	pool, err := connect(ctx, c.Address)
	if err != nil {
		return err
	}
	defer pool.Close()
	coordinator := remote.NewCoordinator(remote.Options{
		Pool: pool, Pipeline: newPipeline(nil),
		// Every remote worker has a key of its own.
		Authenticate: func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil },
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: coordinator}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer server.Close()
	serving.Go(func() { _ = server.Serve(listener) }) // it returns when the server is closed
	fmt.Println(readyPrefix + listener.Addr().String())
	return coordinator.Run(ctx)
}

// connectTimeout is how long one try to connect may take, as in cuelight itself.
const connectTimeout = 10 * time.Second

// connect returns a pool that connects when it is used, as cuelight's does.
func connect(ctx context.Context, address string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	return pgxpool.NewWithConfig(ctx, config)
}
