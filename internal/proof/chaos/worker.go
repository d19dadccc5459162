package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
)

// workerEnv makes this program a worker. It holds the workerConfig as JSON.
const workerEnv = "CUELIGHT_CHAOS_WORKER"

// workerConfig is what a worker process is started with.
type workerConfig struct {
	Address     string // URL of its database; "" for a remote worker
	Coordinator string // URL of the coordinators of a remote worker
	Key         string // of a remote worker
	LogFile     string
	Host        string        // its host name; "" where it has none of its own
	Keep        time.Duration // of finished and dead tasks; 0: for ever
}

// registeredLine is what a worker prints when it is registered.
const registeredLine = "registered"

// workerMain is the main function of a worker process. It works until its standard input ends, which
// also happens when its parent is killed, and then drains.
func workerMain(c workerConfig) error {
	ctx := untilInputEnds()
	if err := setHostname(c.Host); err != nil {
		return err
	}
	log, err := openLogFile(c.LogFile)
	if err != nil {
		return err
	}
	p := newPipeline(&stageWorker{log, filepath.Join(filepath.Dir(c.LogFile), slowTasksFile)})
	runner := stages.Runner{Pipeline: p, Observe: log.writeEvent}
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

// Events of the listener. The other kinds of events are the Runner's.
const (
	listenerConnected    = "listener_connected"
	listenerDisconnected = "listener_disconnected"
)

func (l *logWriter) writeListener(isConnected bool, err error) {
	kind := listenerConnected
	if !isConnected {
		kind = listenerDisconnected
	}
	l.write(logEntry{What: eventEntry, How: kind, Why: progresslog.Brief(err)})
}

// writeEvent records an event of the Runner, except those that stageWorker records itself.
func (l *logWriter) writeEvent(e stages.Event) {
	if e.Kind == stages.StageStarted || e.Kind == stages.StageProgress {
		return
	}
	l.write(logEntry{
		What: eventEntry, How: string(e.Kind), Task: e.Task, Stage: e.Stage, Part: e.Part, Attempt: e.Attempt,
		Worker: e.Worker, Count: e.Count, Why: progresslog.Brief(e.Err),
	})
	switch e.Kind {
	case stages.WorkerStarted:
		fmt.Println(registeredLine)
	case stages.DatabaseUnavailable:
		fmt.Println("lost contact:", progresslog.Brief(e.Err))
	case stages.DatabaseAvailable:
		fmt.Println("has contact again")
	case stages.WorkerLost:
		fmt.Println("expired another worker")
	}
}

// ownHostname is the command that runs another command with a host name of its own, which that sets
// with setHostname.
var ownHostname = []string{"unshare", "--uts", "--"}

// canOwnHostname reports whether this program may give a process a host name of its own.
func canOwnHostname() bool {
	return exec.Command(ownHostname[0], append(ownHostname[1:], "true")...).Run() == nil
}

// setHostname sets the host name of this process, unless it is empty. It refuses to change the
// name of the machine.
func setHostname(name string) error {
	if name == "" {
		return nil
	}
	own, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		return err
	}
	parent, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/uts", os.Getppid()))
	if err != nil {
		return err
	}
	if own == parent {
		return errors.New("this process has no host name of its own")
	}
	return os.WriteFile("/proc/sys/kernel/hostname", []byte(name), 0)
}
