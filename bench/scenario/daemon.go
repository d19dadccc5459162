package scenario

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
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
	return Scenario{Names: []string{"idle_daemon"}, Settings: logAll, Measure: func(ctx context.Context, t *Trial) error {
		return t.withDaemon(ctx, false, func(d *daemon) error {
			if err := ctxsleep.For(ctx, warmup); err != nil {
				return err
			}
			_, err := t.recordUsage(ctx, d, during, "idle_daemon", "")
			return err
		})
	}}
}

// logAll are the settings of a database whose statements are counted.
var logAll = []string{"log_statement=all"}

func requireFFmpeg() error {
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %s is not installed", errNotMeasured, name)
		}
	}
	return nil
}

// daemon is a running daemon.
type daemon struct {
	*childproc.Process
	address string // URL at which it serves HTTP; "" if it does not
}

// withDaemon calls a function while a daemon works on the trial's database, with its files in a directory that is removed
// afterwards.
func (t *Trial) withDaemon(ctx context.Context, servesHTTP bool, do func(*daemon) error) (err error) {
	if err := requireFFmpeg(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(t.Dir, "cuelight-bench-daemon-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "cuelight")
	if err := proofkit.BuildDaemon(ctx, program); err != nil {
		return fmt.Errorf("build the daemon: %w", err)
	}
	// The tables of the benchmark are those of stages that do not divide.
	err = system.WithPool(ctx, t.URL, 0, func(pool *pgxpool.Pool) error {
		_, err := store.New(pool, store.Video()).Migrate(ctx)
		if err == nil {
			err = operators.Migrate(ctx, pool)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make the tables of the daemon: %w", err)
	}
	cmd := exec.Command(program, "serve", "--data-dir", filepath.Join(dir, "data"), "--database-url", t.URL)
	if servesHTTP {
		cmd.Args = append(cmd.Args, "--listen", "127.0.0.1:0")
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.Getenv("TMPDIR")}
	d, err := startDaemon(ctx, cmd, servesHTTP)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, d.Stop(ctx, syscall.SIGTERM))
	}()
	return do(d)
}

// startDaemon returns when the daemon works.
func startDaemon(ctx context.Context, cmd *exec.Cmd, servesHTTP bool) (d *daemon, err error) {
	d, ready := &daemon{}, make(chan struct{})
	reportReady := sync.OnceFunc(func() { close(ready) })
	isWorking := false
	cmd.Stderr = childproc.Lines(func(line []byte) {
		var entry struct{ Msg, Address string }
		_ = json.Unmarshal(line, &entry) // other lines have no message
		switch entry.Msg {
		case "serving HTTP":
			d.address = entry.Address
		case "working":
			isWorking = true
		}
		if isWorking && (d.address != "" || !servesHTTP) {
			reportReady()
		}
	})
	if d.Process, err = childproc.Start(cmd, childproc.Options{}); err != nil {
		return nil, err
	}
	const startTimeout = time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the daemon does not work after %v", startTimeout))
	defer cancel()
	return d, proofkit.WaitReady(ctx, d.Process, ready)
}

// recordUsage records what a daemon uses in some time, with cases that begin with a prefix. It returns the peak of its memory
// since its start, in bytes.
func (t *Trial) recordUsage(ctx context.Context, d *daemon, during time.Duration, scenario, prefix string) (peak int64, err error) {
	log, err := os.Open(t.Log())
	if err != nil {
		return 0, err
	}
	defer log.Close()
	_, err = log.Seek(0, io.SeekEnd)
	started := time.Now()
	before, usageErr := proofkit.UsageOf(d.PID())
	if err = cmp.Or(err, usageErr); err == nil {
		err = ctxsleep.For(ctx, during)
	}
	if err != nil {
		return 0, err
	}
	after, usageErr := proofkit.UsageOf(d.PID())
	seconds := time.Since(started).Seconds()
	text, err := io.ReadAll(log)
	if err = cmp.Or(err, usageErr); err != nil {
		return 0, err
	}
	t.RecordValue(scenario, prefix+"queries", "queries/s", float64(countStatements(text))/seconds)
	t.RecordValue(scenario, prefix+"cpu", "share of a core", (after.CPU-before.CPU).Seconds()/seconds)
	t.RecordValue(scenario, prefix+"memory", "MiB", float64(after.Peak)/(1<<20))
	return after.Peak, nil
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
