package video

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
)

func TestStages_AllHaveStall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ config, tools, want time.Duration }{
		{0, 0, 10 * time.Minute}, {time.Second, 0, time.Second}, {-1, 0, 0},
		{0, time.Minute, 10 * time.Minute}, {0, time.Hour, 5 * time.Hour}, {0, -1, 0}, {time.Second, -1, time.Second},
	} {
		for _, s := range Stages(Config{Stall: c.config, Tools: Tools{Stall: c.tools}}) {
			if s.Stall != c.want {
				t.Errorf("Config.Stall %v, Tools.Stall %v: stage %s has %v", c.config, c.tools, s.Name, s.Stall)
			}
		}
	}
}

// noteLog records what the engine's watchdog observes.
type noteLog struct {
	mu    sync.Mutex
	last  stages.Progress
	notes map[string]int // number of changes, by the first words of the note
	at    time.Time
}

func (c *noteLog) observe(p stages.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Percent == c.last.Percent && p.Note == c.last.Note {
		return
	}
	c.last, c.at = p, time.Now()
	word, _, _ := strings.Cut(p.Note, " ")
	c.notes[word]++
}

func TestStages_ReportEveryStep(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	c := &noteLog{notes: map[string]int{}}
	h.job.OnProgress = c.observe
	for stage, phases := range map[string][]string{
		ingestStage:    {"fetching", "probing", "syncing"},
		transcodeStage: {"transcoding", "checking", "syncing"},
		metadataStage:  {"poster", "syncing"},
		assembleStage:  {"linking", "checking", "manifest", "counting", "syncing"},
		publishStage:   {"publishing", "syncing", "switching"},
	} {
		clear(c.notes)
		if err := h.run(t.Context(), stage, m); err != nil {
			t.Fatal(err)
		}
		for _, phase := range phases {
			least := 2
			if phase == "fetching" || phase == "switching" {
				least = 1 // it is a single short step
			}
			if c.notes[phase] < least {
				t.Errorf("%s: %d changes of the note during %s; all: %v", stage, c.notes[phase], phase, c.notes)
			}
		}
	}
}

func TestIngest_ReportsDownloadOfUnknownLength(t *testing.T) {
	t.Parallel()
	h := newHarness(t, clips.picture)
	h.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	piece := make([]byte, 200<<10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 5 {
			_, _ = w.Write(piece)
			w.(http.Flusher).Flush()
		}
	}))
	defer s.Close()
	h.job.Source = s.URL + "/a.mp4"
	c := &noteLog{notes: map[string]int{}}
	h.job.OnProgress = c.observe
	_, err := h.ingest(t.Context(), h.job)
	wantPermanent(t, "zeros", err)
	if c.notes["fetching"] < 5 {
		t.Errorf("changes %v", c.notes)
	}
}

// A program may hang busily, or asleep.
const busyHang, idleHang = "while :; do :; done", "sleep 3600"

// hangingFFmpeg makes ffmpeg and a child of it hang as soon as it transcodes; both
// ignore SIGTERM.
func (h *harness) hangingFFmpeg(how string) (pids string) {
	h.t.Helper()
	pids = filepath.Join(h.t.TempDir(), "pids")
	h.script(fmt.Sprintf("trap '' TERM INT HUP\nfor a; do case $a in -progress|mjpeg)\n"+
		"(trap '' TERM INT HUP; %s) & echo $! $$ >%q; %s;; esac; done\nexec ffmpeg \"$@\"\n", how, pids, how))
	return pids
}

func (h *harness) script(text string) {
	h.t.Helper()
	h.Tools.FFmpeg = filepath.Join(h.t.TempDir(), "ffmpeg")
	h.Tools.Sandbox = "off" // it may write outside its directory
	write(h.t, h.Tools.FFmpeg, "#!/bin/sh\n"+text)
	if err := os.Chmod(h.Tools.FFmpeg, 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func TestStages_RetryAfterHangingFFmpeg(t *testing.T) {
	t.Parallel()
	for stage, how := range map[string]string{transcodeStage: busyHang, metadataStage: idleHang} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			h, m := readyHarness(t)
			before := snapshot(t, h.DataDir)
			tools := h.Tools
			pids := h.hangingFFmpeg(how)
			h.Tools.Stall = 2 * time.Second
			err := h.run(t.Context(), stage, m)
			wantRetry(t, "hanging", err)
			if !errors.Is(err, media.ErrStalled) || !strings.Contains(err.Error(), "run ffmpeg: no progress for ") {
				t.Errorf("got %v", err)
			}
			wantGone(t, pids)
			wantSame(t, before, snapshot(t, h.DataDir))
			h.Tools = tools
			if err := h.run(t.Context(), stage, m); err != nil {
				t.Errorf("the next attempt: %v", err)
			}
		})
	}
}

// The engine's watchdog works even if the one for ffmpeg is off.
func TestStages_NameLastStepWhenStalled(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	before := snapshot(t, h.DataDir)
	pids := h.hangingFFmpeg(idleHang)
	c := &noteLog{notes: map[string]int{}}
	h.job.OnProgress = c.observe
	ctx, cancel := context.WithCancelCause(t.Context())
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- h.run(ctx, transcodeStage, m) }()
	waittest.Until(t, "ffmpeg hangs", func() bool { return exists(pids) })
	begunToHang := time.Now()
	time.Sleep(3 * time.Second) // no step must be reported meanwhile
	cancel(stages.ErrStalled)
	err := <-ended
	if err == nil || !strings.Contains(err.Error(), `the last reported step is "transcoding`) {
		t.Errorf("got %v", err)
	}
	if c.at.After(begunToHang.Add(time.Second)) {
		t.Errorf("%v after its begin it hung, and %v after that it showed %+v", begunToHang.Sub(began),
			c.at.Sub(begunToHang), c.last)
	}
	wantGone(t, pids)
	wantSame(t, before, snapshot(t, h.DataDir))
}

// wantGone requires that the processes have ended.
func wantGone(t *testing.T, file string) {
	t.Helper()
	for pid := range strings.FieldsSeq(read(t, file)) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("process %s still runs: %s", pid, stat)
		}
	}
}

func TestTranscode_KilledFFmpegCostsOneAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		memory int64
		says   string
		pause  bool
	}{
		"killed from outside": {
			`for a; do [ "$a" = -progress ] && kill -KILL $$; done; exec ffmpeg "$@"`, 0,
			"ffmpeg was killed by another process", false,
		},
		// It uses memory until a limit stops it, as in a container.
		"no memory": {
			`for a; do [ "$a" = -progress ] && { ulimit -v 100000; exec dd if=/dev/zero of=/dev/null bs=300M; }; done; exec ` +
				`ffmpeg "$@"`,
			0, "ffmpeg ended with code 1: dd: memory exhausted", false,
		},
		"too much memory": {
			`for a; do [ "$a" = -progress ] && exec dd if=/dev/zero of=/dev/null bs=300M; done; exec ffmpeg "$@"`,
			100 << 20, "not enough memory: it used", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, m := readyHarness(t)
			before := snapshot(t, h.DataDir)
			tools := h.Tools
			h.script(c.script + "\n")
			h.Tools.Memory = c.memory
			err := h.run(t.Context(), transcodeStage, m)
			wantRetry(t, name, err)
			if _, paused := stages.RetryDelay(err); err == nil || !strings.Contains(err.Error(), c.says) || paused != c.pause {
				t.Errorf("got %v; it waits: %v", err, paused)
			}
			wantSame(t, before, snapshot(t, h.DataDir))
			h.Tools = tools
			if err := h.run(t.Context(), transcodeStage, m); err != nil {
				t.Errorf("the next attempt: %v", err)
			}
		})
	}
}

// An attempt was stopped for longer than its lease and continues. It does not know yet
// that another attempt has the claim, and must do no harm.
func TestStages_LostClaimKeepsOtherResult(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage} {
		if err := h.run(t.Context(), stage, m); err != nil {
			t.Fatal(err)
		}
	}
	// Those results were not recorded. The recorded ones must still be valid.
	for _, stage := range []string{transcodeStage, metadataStage, assembleStage, publishStage} {
		if err := h.run(t.Context(), stage, m); err != nil {
			t.Errorf("%s: %v", stage, err)
		}
	}
}

func TestPublish_OvertakenAttemptPublishesNothing(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	old, p := m, h.mustPublish(m)
	m.as = must(t)(h.assemble(t.Context(), h.job, m.in, m.tr, m.md)).(Assemble)
	before := read(t, filepath.Join(h.PublishDir, p.Master))
	h.job.Results = results(m) // current results
	_, err := h.tryPublish(old)
	wantRetry(t, "overtaken", err)
	if err == nil || !strings.Contains(err.Error(), "overtaken") ||
		read(t, filepath.Join(h.PublishDir, p.Master)) != before {
		t.Errorf("got %v, and the master playlist is\n%s", err, read(t, filepath.Join(h.PublishDir, p.Master)))
	}
	if names := list(t, h.PublishedDir(h.job.Task)); len(names) != 3 {
		t.Errorf("files: %q", names)
	}
}

func TestIngest_RejectsSourceThatStallsFFprobeTwice(t *testing.T) {
	t.Parallel()
	h := newHarness(t, clips.picture)
	count := filepath.Join(t.TempDir(), "count")
	h.script("exec ffmpeg \"$@\"\n")
	probe := h.Tools.FFmpeg + "probe"
	write(t, probe, fmt.Sprintf("#!/bin/sh\necho >>%q\nexec sleep 3600\n", count))
	if err := os.Chmod(probe, 0o755); err != nil {
		t.Fatal(err)
	}
	h.Tools.FFprobe, h.Tools.Stall = probe, 500*time.Millisecond
	_, err := h.ingest(t.Context(), h.job)
	wantPermanent(t, "a source that ffprobe stands still at", err)
	if text, _ := os.ReadFile(count); len(text) != 2 {
		t.Errorf("ffprobe was started %d times, want 2", len(text))
	}
}
