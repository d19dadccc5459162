package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// IdleDaemon measures a daemon without tasks: "idle_daemon", with the statements that it sends
// per second, the share of a core that it uses, and its peak memory, including its start.
//
// Statements are counted in the server's log, with log_statement=all for this database: it has
// a line for each executed statement in either protocol, and for empty ones that check a
// connection. The transactions in pg_stat_database would be less exact: they include those of
// autovacuum, and sessions report theirs up to ten seconds late.
//
// The measurement begins when the daemon has worked for the time of the warm-up.
func IdleDaemon(warmup, during time.Duration) Scenario {
	d := idleDaemon{warmup, during}
	return Scenario{Names: []string{"idle_daemon"}, Settings: []string{"log_statement=all"}, Measure: d.measure}
}

type idleDaemon struct{ warmup, during time.Duration }

// startTimeout is how long a daemon may take to start.
const startTimeout = time.Minute

func (d idleDaemon) measure(ctx context.Context, t *Trial) (err error) {
	daemon, err := startDaemon(ctx, t)
	if err != nil {
		return err
	}
	defer daemon.end(ctx, &err)
	if err := ctxsleep.For(ctx, d.warmup); err != nil {
		return err
	}
	usage, err := measureUsage(ctx, t, daemon, d.during)
	if err != nil {
		return err
	}
	usage.record(t, "idle_daemon", "")
	t.Note("idle_daemon", "cuelight serve on an empty database, for %v, %v after it started to work", d.during, d.warmup)
	return nil
}

func requireFFmpeg() error {
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %s is not installed", errNotMeasured, name)
		}
	}
	return nil
}

// benchDaemon is a running daemon, with its files in a directory.
type benchDaemon struct {
	*childproc.Process
	dir     string
	address string // URL at which it serves HTTP; "" without --listen
}

// startDaemon starts the daemon with some more arguments, and returns when it works.
func startDaemon(ctx context.Context, t *Trial, args ...string) (_ *benchDaemon, err error) {
	if t.DaemonCommand == nil {
		return nil, fmt.Errorf("%w: this session cannot start a daemon", errNotMeasured)
	}
	if err := requireFFmpeg(); err != nil {
		return nil, err
	}
	d := &benchDaemon{}
	if d.dir, err = os.MkdirTemp(t.ScratchDir, "cuelight-bench-daemon-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(d.dir))
		}
	}()
	cmd, err := t.DaemonCommand(ctx, d.dir, t.URL)
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, args...)
	ready := make(chan struct{})
	reportReady := sync.OnceFunc(func() { close(ready) })
	isWorking, isServing := false, !slices.Contains(args, "--listen")
	cmd.Stderr = childproc.Lines(func(line []byte) {
		var entry struct{ Msg, Address string }
		_ = json.Unmarshal(line, &entry) // other lines have no message
		switch entry.Msg {
		case "serving HTTP":
			d.address, isServing = entry.Address, true
		case "working":
			isWorking = true
		}
		if isWorking && isServing {
			reportReady()
		}
	})
	if d.Process, err = childproc.Start(cmd, childproc.Options{}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("the daemon does not work after %v", startTimeout))
	defer cancel()
	return d, proofkit.WaitReady(ctx, d.Process, ready)
}

// end stops the daemon, removes its files, and adds the errors to err.
func (d *benchDaemon) end(ctx context.Context, err *error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	*err = errors.Join(*err, d.Stop(ctx, syscall.SIGTERM), os.RemoveAll(d.dir))
}

// daemonSample is the usage of the daemon at a time.
type daemonSample struct {
	proofkit.Usage
	at      time.Time
	logSize int64 // of the server
}

// daemonUsage is what a daemon used in some time.
type daemonUsage struct {
	queries float64 // per second
	cpu     float64 // cores
	memory  int64   // bytes, at most since its start
}

func measureUsage(ctx context.Context, t *Trial, d *benchDaemon, during time.Duration) (u daemonUsage, err error) {
	before, err := takeDaemonSample(t.Server, d.PID())
	if err != nil {
		return u, err
	}
	if err := ctxsleep.For(ctx, during); err != nil {
		return u, err
	}
	after, err := takeDaemonSample(t.Server, d.PID())
	if err != nil {
		return u, err
	}
	seconds := after.at.Sub(before.at).Seconds()
	statements, err := t.Server.countLoggedStatements(before.logSize, after.logSize)
	return daemonUsage{float64(statements) / seconds, (after.CPU - before.CPU).Seconds() / seconds, after.Peak}, err
}

// record records the usage with cases that begin with a prefix.
func (u daemonUsage) record(t *Trial, scenario, prefix string) {
	t.Record(scenario, prefix+"queries", "queries/s", result.FromValue(u.queries))
	t.Record(scenario, prefix+"cpu", "share of a core", result.FromValue(u.cpu))
	t.Record(scenario, prefix+"memory", "MiB", result.FromValue(float64(u.memory)/(1<<20)))
}

func takeDaemonSample(s *Server, pid int) (d daemonSample, err error) {
	info, err := os.Stat(s.server.Log())
	if err != nil {
		return d, err
	}
	d.logSize, d.at = info.Size(), time.Now()
	d.Usage, err = proofkit.UsageOf(pid)
	return d, err
}

// countLoggedStatements counts statements in a part of the server's log.
func (s *Server) countLoggedStatements(from, to int64) (n int, err error) {
	log, err := os.Open(s.server.Log())
	if err != nil {
		return 0, err
	}
	defer log.Close()
	text, err := io.ReadAll(io.NewSectionReader(log, from, to-from))
	return countStatements(text), err
}

// countStatements counts the lines of statements in the simple and in the extended protocol.
// Further lines of a statement start with a tab.
func countStatements(log []byte) (n int) {
	for line := range bytes.Lines(log) {
		if line[0] != '\t' && (bytes.Contains(line, []byte(" LOG:  statement: ")) ||
			bytes.Contains(line, []byte(" LOG:  execute "))) {
			n++
		}
	}
	return n
}
