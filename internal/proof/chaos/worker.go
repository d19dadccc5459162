package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
)

// workerEnv makes this program a worker, and coordinatorEnv a coordinator. They hold a workerConfig and a
// coordinatorConfig as JSON.
const (
	workerEnv      = "CUELIGHT_CHAOS_WORKER"
	coordinatorEnv = "CUELIGHT_CHAOS_COORDINATOR"
)

// workerConfig is what a worker process is started with.
type workerConfig struct {
	Address     string // URL of its database; "" for a remote worker
	Coordinator string // URL of the coordinators of a remote worker
	Key         string // of a remote worker
	LogFile     string
	Keep        time.Duration // of finished and dead tasks; 0: for ever
}

// coordinatorConfig is what a coordinator process is started with.
type coordinatorConfig struct {
	Address string // URL of its database
}

// workerMain is the main function of a worker process. It works until its standard input ends, which
// also happens when its parent is killed, and then drains.
func workerMain(c workerConfig) error {
	ctx := untilInputEnds()
	log, err := openLogFile(c.LogFile)
	if err != nil {
		return err
	}
	runner := stages.Runner{Pipeline: newPipeline(log), Observe: log.writeEvent}
	if c.Coordinator != "" {
		return workRemotely(ctx, c, runner)
	}
	return work(ctx, c, log, runner)
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
func work(ctx context.Context, c workerConfig, log *logWriter, runner stages.Runner) error {
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

// workRemotely runs the pipeline as `cuelight work` does.
func workRemotely(ctx context.Context, c workerConfig, runner stages.Runner) error {
	client, err := remote.NewClient(remote.ClientOptions{URL: c.Coordinator, Key: c.Key, Graph: graph()})
	if err != nil {
		return err
	}
	runner.Backend, runner.Wakes = client.Backend(), client.Wakes()
	runner.Capabilities = json.RawMessage(`{"labels": ["` + remoteLabel + `"]}`)
	return runner.Run(ctx)
}

// coordinatorMain is the main function of a coordinator process. It serves remote workers until its
// standard input ends.
func coordinatorMain(c coordinatorConfig) error {
	ctx := untilInputEnds()
	pool, err := connect(ctx, c.Address)
	if err != nil {
		return err
	}
	defer pool.Close()
	var failed atomic.Bool
	coordinator := remote.NewCoordinator(remote.Options{
		Pool: pool, Pipeline: newPipeline(nil), Authenticate: keyOf,
		OnError: func(err error) {
			if isFailed := err != nil; failed.Swap(isFailed) != isFailed {
				fmt.Println("error of the database:", progresslog.Brief(err))
			}
		},
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

// keyOf returns the key of a request. Every remote worker has one of its own.
func keyOf(r *http.Request) (string, error) {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", errors.New("the request has no key")
	}
	return key, nil
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
