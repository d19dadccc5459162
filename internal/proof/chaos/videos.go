package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/invariant"
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
	*slot
	dir, program, address string
	logFile               *os.File
	pool                  *pgxpool.Pool
	store                 *store.Store

	videosMu sync.Mutex
	videos   map[string]store.ID // by request id
}

// errNoVideos says why no videos are published.
var errNoVideos = errors.New("no videos")

// newVideoDaemon builds the program, makes a clip and tables, and starts the daemon.
func newVideoDaemon(
	ctx context.Context, log *progresslog.Log, dir string, server *pgtest.Ephemeral,
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
	d.slot = newSlot(log, "the daemon", d.serve)
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if d.logFile, err = os.Create(filepath.Join(dir, "daemon.log")); err != nil {
		return nil, err
	}
	if err := proofkit.BuildDaemon(ctx, d.program); err != nil {
		return nil, err
	}
	if err := proofkit.MakeClip(ctx, d.clip(), "testsrc2=size=64x48:rate=25", time.Second, true); err != nil {
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

func (d *videoDaemon) clip() string       { return filepath.Join(d.dir, "clip.mp4") }
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
// whose attempts are all killed dies, as it should; but the check wants every video published.
func (d *videoDaemon) waitForNoRetries(ctx context.Context) error {
	isFree, err := proofkit.Poll(ctx, faultTimeout, 50*ms, func() (bool, error) {
		queryCtx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		anyRetry := true // while the server is away
		_ = d.pool.QueryRow(queryCtx, anyRetrySQL).Scan(&anyRetry)
		return !anyRetry, nil
	})
	if err == nil && !isFree {
		return errors.New("a video may be at its second attempt, and another fault could make it dead")
	}
	return err
}

// submitVideos submits videos until submitting is done, and then repeats what was not
// acknowledged until ctx is done.
func (d *videoDaemon) submitVideos(ctx, submitting context.Context) {
	for n := 0; submitting.Err() == nil; n++ {
		task := store.Submission{Source: d.clip(), RequestID: fmt.Sprintf("video-%03d", n+1)}
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

// waitUntilSettled waits until every video is finished, or until the timeout.
func (d *videoDaemon) waitUntilSettled(ctx context.Context) error {
	const anySQL = "select exists (select from tasks where state in ('pending', 'inprogress'))"
	_, err := proofkit.Poll(ctx, videoTimeout, 100*ms, func() (bool, error) {
		var isAny bool
		err := d.pool.QueryRow(ctx, anySQL).Scan(&isAny)
		return !isAny, err
	})
	return err
}

// check lists what is wrong with the videos, and counts those that can be played. All must be
// published.
func (d *videoDaemon) check(ctx context.Context) (playable int, violations []string, err error) {
	broken, err := invariant.Check(ctx, d.pool, store.Video(), invariant.Options{Settled: true, NoRetries: true})
	if err != nil {
		return 0, nil, err
	}
	for _, v := range broken {
		violations = append(violations, v.String())
	}
	for request, id := range d.videos {
		if err := d.checkVideo(ctx, id); err != nil {
			violations = append(violations, fmt.Sprintf("%s: %v", request, err))
			continue
		}
		playable++
	}
	temporary := []string{"*.tmp", "*.tap", ".write-*", ".poster-*", "*.part"}
	leftovers, err := invariant.Files(temporary, filepath.Join(d.dataDir(), "tasks"), d.publishDir())
	for _, file := range leftovers {
		violations = append(violations, "temporary file left over: "+file)
	}
	slices.Sort(violations)
	return playable, violations, err
}

// checkVideo returns an error if the video is not published or cannot be played.
func (d *videoDaemon) checkVideo(ctx context.Context, id store.ID) error {
	task, err := d.store.Get(ctx, id)
	if err != nil {
		return err
	}
	if task.Status != store.StatusCompleted {
		err := fmt.Errorf("the task is %s", task.Status)
		history, _ := d.store.History(ctx, id) // only adds detail
		for _, a := range history {
			err = fmt.Errorf("%w; %s %d: %.300q", err, a.Stage, a.Attempt, a.Error)
		}
		return err
	}
	dir := filepath.Join(d.publishDir(), id.String())
	playlists := 0
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		// ffprobe reads I-frame playlists like others, for which their ranges are incomplete files.
		if err != nil || filepath.Ext(path) != ".m3u8" || filepath.Base(path) == "iframes.m3u8" {
			return err
		}
		playlists++
		return checkPlaylist(ctx, path)
	})
	if err == nil && playlists < 3 { // the two copies of the master playlist, and a rendition
		return fmt.Errorf("%s has %d playlists, want at least 3", dir, playlists)
	}
	return err
}

// checkPlaylist reads all packets of a playlist. ffprobe must print no warning.
func checkPlaylist(ctx context.Context, playlist string) error {
	cmd := exec.CommandContext(ctx, "ffprobe", "-v", "warning", "-count_packets",
		"-show_entries", "stream=nb_read_packets", "-of", "csv=p=0", playlist)
	var warnings strings.Builder
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err == nil && warnings.Len() == 0 && len(strings.Fields(string(out))) > 0 {
		return nil
	}
	return fmt.Errorf("%s cannot be played: %v: %s%s", playlist, err, warnings.String(), out)
}
