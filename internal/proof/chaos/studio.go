package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

const (
	videoDatabase = "video"
	// aVideoEvery is about as many as one daemon can make on a small machine
	// that does all the rest, too.
	aVideoEvery = 6 * time.Second
	// videosWithin is how long making what was submitted may take, once nothing
	// is broken any more.
	videosWithin = 4 * time.Minute
)

// studio is a real `cuelight serve`, which publishes real videos.
type studio struct {
	*progresslog.Log
	dir, program, address string
	clips                 []string
	pool                  *pgxpool.Pool
	store                 *store.Store

	mu        sync.Mutex
	closing   bool
	processes []*process // the last one is the present
	wrong     []string   // ends that nobody caused
	all       sync.WaitGroup
	videos    map[string]store.ID
}

// errNoVideos says why there are to be none.
var errNoVideos = errors.New("no videos")

// newStudio builds the program, makes clips and tables, and starts the daemon.
func newStudio(ctx context.Context, t *progresslog.Log, dir string, server *pgserver.Server) (_ *studio, err error) {
	for _, tool := range []string{"ffmpeg", "ffprobe", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: there is no %s", errNoVideos, tool)
		}
	}
	s := &studio{
		Log: t, dir: dir, program: filepath.Join(dir, "cuelight"), videos: make(map[string]store.ID),
		address: server.URL(videoDatabase) + "&application_name=" + ourSessions + "daemon",
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error {
			return command(ctx, "go", "build", "-o", s.program, "github.com/cuelight/cuelight/cmd/cuelight")
		},
		s.film,
		func(ctx context.Context) error { return server.CreateDatabase(ctx, videoDatabase) },
		s.prepare,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s, s.start()
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// film makes the clips.
func (s *studio) film(ctx context.Context) error {
	for i, source := range []string{"testsrc2", "smptebars", "mandelbrot"} {
		clip := filepath.Join(s.dir, fmt.Sprintf("clip-%d.mp4", i+1))
		args := []string{"-v", "error", "-nostdin", "-f", "lavfi", "-i", source + "=size=64x48:rate=25"}
		if i < 2 {
			args = append(args, "-f", "lavfi", "-i", "sine", "-c:a", "aac")
		}
		args = append(args, "-t", "1", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", clip)
		if err := command(ctx, "ffmpeg", args...); err != nil {
			return err
		}
		s.clips = append(s.clips, clip)
	}
	return nil
}

func (s *studio) data() string    { return filepath.Join(s.dir, "data") }
func (s *studio) publish() string { return filepath.Join(s.dir, "published") }

func (s *studio) prepare(ctx context.Context) (err error) {
	if s.pool, err = pgxpool.New(ctx, s.address); err != nil {
		return err
	}
	s.store = store.New(s.pool, store.Video())
	_, err = s.store.Migrate(ctx)
	return err
}

// start starts the daemon, if none runs.
func (s *studio) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.processes); s.closing || n > 0 && !s.processes[n-1].over() {
		return nil
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "daemon.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.program, "serve")
	cmd.Stderr = log
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "CUELIGHT_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env,
		"CUELIGHT_DATABASE_URL="+s.address, "CUELIGHT_DATA_DIR="+s.data(), "CUELIGHT_PUBLISH_DIR="+s.publish(),
		"CUELIGHT_PRESET=ultrafast", "CUELIGHT_RESERVE=0")
	p, err := startProcess(cmd, here, func(string) {})
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	s.processes = append(s.processes, p)
	s.all.Go(func() { s.watch(p) })
	return nil
}

func (s *studio) watch(p *process) {
	<-p.done
	if p.expected() {
		return
	}
	what := fmt.Sprintf("the daemon ended by itself: %v", p.err)
	s.Logf("%s", what)
	s.mu.Lock()
	s.wrong = append(s.wrong, what)
	s.mu.Unlock()
	if err := s.start(); err != nil {
		s.Logf("%v", err)
	}
}

func (s *studio) present() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[len(s.processes)-1]
}

// spare waits until no stage is being tried again: who is hit every time has a
// right to die, and all videos are to live. It does not wait for a server that
// is away, which spares nobody.
func (s *studio) spare(ctx context.Context, limit time.Duration) error {
	const againSQL = `
select exists (select from tasks
 where ingest_status in ('inprogress', 'failed') and ingest_attempts > 1
    or transcode_status in ('inprogress', 'failed') and transcode_attempts > 1
    or metadata_status in ('inprogress', 'failed') and metadata_attempts > 1
    or assemble_status in ('inprogress', 'failed') and assemble_attempts > 1
    or publish_status in ('inprogress', 'failed') and publish_attempts > 1)`
	for late := time.Now().Add(limit); ; {
		within, cancel := context.WithTimeout(ctx, time.Second)
		var again bool
		err := s.pool.QueryRow(within, againSQL).Scan(&again)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil, !again:
			return nil
		case time.Now().After(late):
			return errors.New("somebody would be hit too often")
		}
		if err := pause(ctx, 50*ms); err != nil {
			return err
		}
	}
}

// killOne ends an ffmpeg of the daemon's, if one runs.
func (s *studio) killOne() bool {
	for _, pid := range below(s.present().pid(), "ffmpeg") {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			return true
		}
	}
	return false
}

// run submits videos until until is done, and then repeats what was not
// acknowledged until ctx is done.
func (s *studio) run(ctx, until context.Context) {
	for n := 0; until.Err() == nil; n++ {
		sub := store.Submission{Source: s.clips[n%len(s.clips)], RequestID: fmt.Sprintf("video-%03d", n+1)}
		_ = insist(ctx, videosWithin, func(ctx context.Context) error {
			r, err := s.store.Submit(ctx, sub)
			if err == nil {
				s.mu.Lock()
				s.videos[sub.RequestID] = r.ID
				s.mu.Unlock()
			}
			return err
		}) // what was not acknowledged need not be there
		_ = pause(until, aVideoEvery) // its end ends the loop
	}
}

// drain tells the daemon to end, and says what went wrong with that.
func (s *studio) drain() []string {
	s.mu.Lock()
	s.closing = true
	wrong := s.wrong
	s.mu.Unlock()
	if p := s.present(); !p.over() && !p.end(drainWithin, syscall.SIGTERM) {
		wrong = append(wrong, fmt.Sprintf("the daemon, told to end, did so with %v", p.err))
	}
	return wrong
}

// close ends what is left, without ado.
func (s *studio) close() {
	s.mu.Lock()
	s.closing = true
	processes := s.processes
	s.mu.Unlock()
	for _, p := range processes {
		p.kill()
	}
	s.all.Wait()
	if s.pool != nil {
		s.pool.Close()
	}
}
