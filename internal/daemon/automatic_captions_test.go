package daemon

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	cuelight "github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/internal/whispertest"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const publishedSoundSQL = `
with task as (
  insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
  values ('/a.mp4', 'completed', 'completed', 'completed', 'completed', 'completed') returning id)
insert into attempts (task_id, stage, attempt, outcome, token, started_at, result)
select id, stage, 1, 'completed', cuelight_id(), now(), result::jsonb
  from task cross join (values ('transcode', '{"output": {"audio": [{"playlist": "audio/index.m3u8", "duration": 1}]}}'),
                               ('publish', '{"generation": "gen"}')) as made (stage, result)
returning task_id`

// newAutomaticCaptions returns those of a store with a video that is only a sound.
func newAutomaticCaptions(t *testing.T) (*automaticCaptions, *observer.ObservedLogs, store.ID, whispertest.Program) {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("there is no ffmpeg here")
	}
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	var task store.ID
	if err := st.DB().QueryRow(t.Context(), publishedSoundSQL).Scan(&task); err != nil {
		t.Fatal(err)
	}
	c := video.Config{DataDir: t.TempDir(), PublishDir: t.TempDir(), Reserve: -1}
	dir := filepath.Join(c.PublishDir, "gen", "audio")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	make := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac",
		"-f", "hls", "-hls_playlist_type", "vod", "-hls_segment_type", "fmp4", "index.m3u8")
	make.Dir = dir
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program := whispertest.New(t)
	c.Tools = video.Tools{Whisper: program.Path, WhisperModel: program.Model, Sandbox: media.SandboxOff}
	core, logged := observer.New(zap.InfoLevel)
	return &automaticCaptions{store: st, config: c, log: zap.New(core), lease: automaticLease}, logged, task, program
}

// start runs until the test ends, or stop is called.
func (a *automaticCaptions) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	close(started)
	var running sync.WaitGroup
	running.Go(func() { a.run(ctx, started) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func awaitLogged(t *testing.T, logged *observer.ObservedLogs, message string) {
	t.Helper()
	waittest.Until(t, message, func() bool { return logged.FilterMessage(message).Len() == 1 })
}

func TestAutomaticCaptions_ExtendTheirClaimAndStopWithoutIt(t *testing.T) {
	t.Parallel()
	a, logged, task, program := newAutomaticCaptions(t)
	a.lease /= 200
	program.Shut(t)
	if err := attached.New(a.store).RequestAutomatic(t.Context(), task, "de"); err != nil {
		t.Fatal(err)
	}
	a.start(t)
	waittest.Until(t, "the speech is being recognized", func() bool { return program.Calls() == 1 })
	runAt := func() (at time.Time) {
		if err := a.store.DB().QueryRow(t.Context(), `select run_at from cuelight_automatic_captions`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := runAt()
	waittest.Until(t, "the claim is extended", func() bool { return runAt().After(before) })
	if _, err := a.store.DB().Exec(t.Context(), `update cuelight_automatic_captions set token = cuelight_id()`); err != nil {
		t.Fatal(err)
	}
	awaitLogged(t, logged, "another process makes the automatic captions")
}

func TestAutomaticCaptions_LogWhyTheyFail(t *testing.T) {
	t.Parallel()
	a, logged, task, _ := newAutomaticCaptions(t)
	if err := attached.New(a.store).RequestAutomatic(t.Context(), task, "la"); err != nil {
		t.Fatal(err)
	}
	a.start(t)
	awaitLogged(t, logged, "automatic captions failed")
	var failure string
	var wait float64
	waittest.Until(t, "the failure is recorded", func() bool {
		const sql = `select error, extract(epoch from run_at - now())::float8 from cuelight_automatic_captions`
		if err := a.store.DB().QueryRow(t.Context(), sql).Scan(&failure, &wait); err != nil {
			t.Fatal(err)
		}
		return failure != ""
	})
	if fields := logged.FilterMessage("automatic captions failed").All()[0].ContextMap(); fields["error"] != failure || wait < 30 {
		t.Errorf("logged %v; the table has %q, and the next attempt is in %v s", fields, failure, wait)
	}
	if _, err := a.store.DB().Exec(t.Context(), `update cuelight_automatic_captions set run_at = now(), attempts = $1`,
		attached.MaxAutomaticAttempts-1); err != nil {
		t.Fatal(err)
	}
	awaitLogged(t, logged, "automatic captions failed; they are tried again when the video is published again")
}
