package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	if t.DaemonCommand == nil {
		return fmt.Errorf("%w: this session cannot start a daemon", errNotMeasured)
	}
	if err := requireFFmpeg(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(t.ScratchDir, "cuelight-bench-daemon-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	daemon, err := startDaemon(ctx, t, dir)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, daemon.Stop(ctx, syscall.SIGTERM))
	}()
	if err := ctxsleep.For(ctx, d.warmup); err != nil {
		return err
	}
	return d.measureUsage(ctx, t, daemon.PID())
}

func requireFFmpeg() error {
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %s is not installed", errNotMeasured, name)
		}
	}
	return nil
}

// startDaemon starts the daemon and returns when it works.
func startDaemon(ctx context.Context, t *Trial, dir string) (*childproc.Process, error) {
	cmd, err := t.DaemonCommand(ctx, dir, t.URL)
	if err != nil {
		return nil, err
	}
	working := make(chan struct{})
	reportWorking := sync.OnceFunc(func() { close(working) })
	cmd.Stderr = childproc.Lines(func(line []byte) {
		if bytes.Contains(line, []byte(`"msg":"working"`)) {
			reportWorking()
		}
	})
	daemon, err := childproc.Start(cmd, childproc.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("the daemon does not work after %v", startTimeout))
	defer cancel()
	return daemon, proofkit.WaitReady(ctx, daemon, working)
}

// daemonSample is the usage of the daemon at a time.
type daemonSample struct {
	proofkit.Usage
	at      time.Time
	logSize int64 // of the server
}

func (d idleDaemon) measureUsage(ctx context.Context, t *Trial, pid int) error {
	before, err := takeDaemonSample(t.Server, pid)
	if err != nil {
		return err
	}
	if err := ctxsleep.For(ctx, d.during); err != nil {
		return err
	}
	after, err := takeDaemonSample(t.Server, pid)
	if err != nil {
		return err
	}
	seconds := after.at.Sub(before.at).Seconds()
	statements, err := t.Server.countLoggedStatements(before.logSize, after.logSize)
	if err != nil {
		return err
	}
	t.Record("idle_daemon", "queries", "queries/s", result.FromValue(float64(statements)/seconds))
	t.Record("idle_daemon", "cpu", "share of a core", result.FromValue((after.CPU-before.CPU).Seconds()/seconds))
	t.Record("idle_daemon", "memory", "MiB", result.FromValue(float64(after.Peak)/(1<<20)))
	t.Note("idle_daemon", "cuelight serve on an empty database, for %v, %v after it started to work", d.during, d.warmup)
	return nil
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
