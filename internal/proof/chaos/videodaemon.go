package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

const (
	videoDatabase = "video"
	// videoInterval leaves one daemon the time to publish each video on a small machine, next to
	// everything else.
	videoInterval = 6 * time.Second
	// videoTimeout is how long publishing the videos may take after the faults.
	videoTimeout = 4 * time.Minute
)

// videoDaemon is a real `cuelight serve`, which publishes real videos.
type videoDaemon struct {
	slot
	dir, program, address string
	logFile               *os.File
	clips                 []string
	pool                  *pgxpool.Pool
	store                 *store.Store

	mayBeRetrying atomic.Bool // a stage, as far as the last answer of the server and the faults say

	videosMu sync.Mutex
	videos   map[string]store.ID // by request id
}

// errNoVideos says why no videos are published.
var errNoVideos = errors.New("no videos")

// newVideoDaemon builds the program, makes clips and tables, and starts the daemon.
func newVideoDaemon(
	ctx context.Context, log *progresslog.Log, dir string, server *postgres.Ephemeral,
) (_ *videoDaemon, err error) {
	for _, tool := range []string{"ffmpeg", "ffprobe", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %s is not installed", errNoVideos, tool)
		}
	}
	d := &videoDaemon{
		dir: dir, program: filepath.Join(dir, "cuelight"), videos: make(map[string]store.ID),
		address: server.URL(videoDatabase) + "&application_name=" + sessionPrefix + "daemon",
	}
	d.log, d.name, d.command = log, "the daemon", d.serve
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	d.logFile, err = os.OpenFile(filepath.Join(dir, "daemon.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := proofkit.BuildDaemon(ctx, d.program); err != nil {
		return nil, err
	}
	if err := d.makeClips(ctx); err != nil {
		return nil, err
	}
	if err := server.CreateDatabase(ctx, videoDatabase); err != nil {
		return nil, err
	}
	if d.pool, err = pgxpool.New(ctx, d.address); err != nil {
		return nil, err
	}
	d.store = store.New(d.pool, store.Video())
	if _, err = d.store.Migrate(ctx); err != nil {
		return nil, err
	}
	if err = operators.Migrate(ctx, d.pool); err != nil {
		return nil, err
	}
	return d, d.start()
}

func (d *videoDaemon) makeClips(ctx context.Context) error {
	for i, source := range []string{"testsrc2", "smptebars", "mandelbrot"} {
		clip := filepath.Join(d.dir, fmt.Sprintf("clip-%d.mp4", i+1))
		if err := proofkit.MakeClip(ctx, clip, source+"=size=64x48:rate=25", time.Second, i < 2); err != nil {
			return err
		}
		d.clips = append(d.clips, clip)
	}
	return nil
}

func (d *videoDaemon) dataDir() string    { return filepath.Join(d.dir, "data") }
func (d *videoDaemon) publishDir() string { return filepath.Join(d.dir, "published") }

// serve returns the command of the daemon.
func (d *videoDaemon) serve(int) (*exec.Cmd, error) {
	cmd := exec.Command(d.program, "serve")
	cmd.Stderr = d.logFile
	cmd.Env = proofkit.DaemonEnviron(
		"CUELIGHT_DATABASE_URL="+d.address, "CUELIGHT_DATA_DIR="+d.dataDir(), "CUELIGHT_PUBLISH_DIR="+d.publishDir(),
		"CUELIGHT_PRESET=ultrafast", "CUELIGHT_RESERVE=0")
	return cmd, nil
}

const anyRetrySQL = `
select exists (select from steps where status <> 'completed' and attempts > 1)`

// waitForNoRetries waits until no stage is being retried, for a fault that makes one fail. A task
// whose attempts are all killed dies, as it should; but the check wants every video published. While
// the server is away, one such fault is allowed since the last answer.
func (d *videoDaemon) waitForNoRetries(ctx context.Context, limit time.Duration) error {
	isFree, err := proofkit.Poll(ctx, limit, 50*ms, func() (bool, error) {
		queryCtx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var anyRetry bool
		if d.pool.QueryRow(queryCtx, anyRetrySQL).Scan(&anyRetry) == nil {
			d.mayBeRetrying.Store(anyRetry)
		}
		return !d.mayBeRetrying.Load(), nil
	})
	if err == nil && !isFree {
		return errors.New("a video may be at its second attempt, and another fault could make it dead")
	}
	d.mayBeRetrying.Store(true)
	return err
}

// killFFmpeg kills an ffmpeg of the daemon, if one runs.
func (d *videoDaemon) killFFmpeg() bool {
	for _, pid := range proofkit.ChildrenRunning(d.current().PID(), "ffmpeg") {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			return true
		}
	}
	return false
}

// submitVideos submits videos until submitting is done, and then repeats what was not
// acknowledged until ctx is done.
func (d *videoDaemon) submitVideos(ctx, submitting context.Context) {
	for n := 0; submitting.Err() == nil; n++ {
		task := store.Submission{Source: d.clips[n%len(d.clips)], RequestID: fmt.Sprintf("video-%03d", n+1)}
		_ = proofkit.Retry(ctx, videoTimeout, func(ctx context.Context) error {
			r, err := d.store.Submit(ctx, task)
			if err == nil {
				d.videosMu.Lock()
				d.videos[task.RequestID] = r.ID
				d.videosMu.Unlock()
			}
			return err
		}) // a video that was not acknowledged need not exist
		_ = ctxsleep.For(submitting, videoInterval) // the loop sees that it is done
	}
}

// close kills what still runs.
func (d *videoDaemon) close() {
	d.slot.close()
	if d.pool != nil {
		d.pool.Close()
	}
	if d.logFile != nil {
		d.logFile.Close()
	}
}
