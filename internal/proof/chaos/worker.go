package main

import (
	"context"
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
)

// workerEnv makes this program a worker. It holds the workerConfig as JSON.
const workerEnv = "CUELIGHT_CHAOS_WORKER"

// workerConfig is what a worker process is started with.
type workerConfig struct {
	Address string // URL of its database
	LogFile string
	Host    string // its host name; "" where it has none of its own
}

// registeredLine is what a worker prints when it is registered.
const registeredLine = "registered"

// workerMain is the main function of a worker process. It works until its standard input ends, which
// also happens when its parent is killed, and then drains.
func workerMain(c workerConfig) error {
	signal.Ignore(os.Interrupt) // a Ctrl-C is for the parent
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := setHostname(c.Host); err != nil {
		return err
	}
	return work(ctx, c.Address, c.LogFile)
}

// work runs the pipeline as `cuelight serve` does.
func work(ctx context.Context, address, logFile string) error {
	log, err := openLogFile(logFile)
	if err != nil {
		return err
	}
	pool, err := connect(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	p := newPipeline(&stageWorker{log, filepath.Join(filepath.Dir(logFile), slowTasksFile)})
	listener := notify.New(pool, notify.Options{Channels: p.Channels(), OnChange: log.writeListener})
	runner := stages.Runner{Pool: pool, Pipeline: p, Wakes: listener, Observe: log.writeEvent}
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
		What: eventEntry, How: string(e.Kind), Task: e.Task, Stage: e.Stage, Attempt: e.Attempt,
		Worker: e.Worker, Count: e.Count, Why: progresslog.Brief(e.Err),
	})
	switch e.Kind {
	case stages.WorkerStarted:
		fmt.Println(registeredLine)
	case stages.DatabaseUnavailable:
		fmt.Println("lost the database:", progresslog.Brief(e.Err))
	case stages.DatabaseAvailable:
		fmt.Println("reached the database again")
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
