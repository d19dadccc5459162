package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"code.dny.dev/ssrf"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

func TestStages_FormPipeline(t *testing.T) {
	t.Parallel()
	needs := ""
	for _, s := range Stages(Config{}) {
		needs += fmt.Sprintf("%s%v ", s.Name, s.Needs)
		if s.Slots < 1 {
			t.Errorf("stage %s has %d slots", s.Name, s.Slots)
		}
	}
	want := "ingest[] transcode[ingest] metadata[ingest] assemble[transcode metadata] publish[assemble] "
	if needs != want {
		t.Errorf("got %s", needs)
	}
	if _, err := stages.New("videos", Stages(Config{})...); err != nil {
		t.Error(err)
	}
	if s := (Config{Slots: Slots{Transcode: 5}}).Transcode(); s.Slots != 5 {
		t.Errorf("transcode has %d slots", s.Slots)
	}
}

func TestStages_PublishVideo(t *testing.T) {
	t.Parallel()
	h := newHarness(t, clips.picture)
	before := read(t, clips.picture)
	m := h.mustMake()
	p := h.mustPublish(m)

	if m.in.Name != "picture.mp4" || m.in.Bytes != int64(len(before)) || filepath.Ext(m.in.File) != ".mp4" {
		t.Errorf("ingest: %+v", m.in)
	}
	if read(t, clips.picture) != before || sameFile(t, clips.picture, filepath.Join(h.TaskDir(h.job.Task), m.in.File)) {
		t.Error("the source changed")
	}
	public := filepath.Join(h.PublishDir, h.job.Task.String())
	if p.Master != h.job.Task.String()+"/master.m3u8" ||
		filepath.Dir(filepath.Join(h.PublishDir, p.Generation)) != public {
		t.Errorf("publish: %+v", p)
	}
	for _, file := range []string{p.Master, p.Manifest, p.Metadata, p.Poster, p.Storyboard} {
		if info, err := os.Stat(filepath.Join(h.PublishDir, file)); err != nil || info.Size() == 0 {
			t.Errorf("%q: %v, %v", file, info, err)
		}
	}
	gen := filepath.Base(p.Generation)
	all := append(append([]media.Rendition{}, m.tr.Output.Video...), m.tr.Output.Audio...)
	for _, dir := range []string{public, filepath.Join(public, gen)} {
		wantPlayable(t, filepath.Join(dir, "master.m3u8"), all)
		wantPlayable(t, filepath.Join(dir, "manifest.mpd"), all)
	}
	if master := read(t, filepath.Join(public, "master.m3u8")); !strings.Contains(master, gen+"/") {
		t.Errorf("the master playlist does not refer to %s:\n%s", gen, master)
	}
	// Nothing is stored twice, and no attempt left files.
	segment := all[0].Init
	if !sameFile(t, filepath.Join(h.PublishDir, p.Generation, segment),
		filepath.Join(h.TaskDir(h.job.Task), m.tr.Dir, segment)) {
		t.Error("the published files are not the transcoded ones")
	}
	for dir, want := range map[string]int{h.TaskDir(h.job.Task): 4, public: 3} {
		if names := list(t, dir); len(names) != want {
			t.Errorf("%s contains %q", dir, names)
		}
	}
	var d Description
	err := json.Unmarshal([]byte(read(t, filepath.Join(h.PublishDir, p.Metadata))), &d)
	if err != nil || d.Info == nil || d.Info.Video.Width != 320 {
		t.Errorf("metadata.json: %+v, %v", d, err)
	}
	if strings.Contains(read(t, filepath.Join(h.PublishDir, p.Metadata)), "picture.mp4") {
		t.Error("the source's name is published")
	}
}

func TestStages_PublishAudioWithoutPoster(t *testing.T) {
	t.Parallel()
	h := newHarness(t, clips.sound)
	m := h.mustMake()
	p := h.mustPublish(m)
	if p.Poster != "" || p.Storyboard != "" || len(m.tr.Output.Video) != 0 {
		t.Errorf("got %+v", p)
	}
	if names := list(t, filepath.Join(h.PublishDir, p.Generation)); slices.Contains(names, media.StoryboardDir) {
		t.Errorf("published: %q", names)
	}
	wantPlayable(t, filepath.Join(h.PublishDir, p.Master), m.tr.Output.Audio)
}

func TestIngest_AcceptsAnyName(t *testing.T) {
	t.Parallel()
	clip := newHarness(t, clips.picture)
	for _, name := range []string{
		"-i.mp4", "a b.mp4", `q"u'o.mp4`, "50%d%05d.mp4", "new\nline.mp4", "\xff\xfe.mp4", "a:b?c#d.mp4",
		"concat:x|y.mp4", "no extension", "..mp4", "x." + strings.Repeat("e", 200), "漢字.MP4",
	} {
		path := filepath.Join(t.TempDir(), name)
		write(t, path, read(t, clip.job.Source))
		h := newHarness(t, path)
		in := h.mustIngest()
		if _, err := os.Stat(filepath.Join(h.TaskDir(h.job.Task), in.File)); err != nil || in.Info.Video == nil {
			t.Errorf("%q: %+v, %v", name, in, err)
		}
		if !strings.HasPrefix(filepath.Base(in.File), "source") || len(in.File) > 60 {
			t.Errorf("%q became %q", name, in.File)
		}
	}
}

// Each of these makes an unrestricted ffmpeg open another file or a connection.
func TestIngest_DisguisedSourceOpensNothingElse(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer s.Close()
	probe := newHarness(t, clips.picture)
	secret := filepath.Join(t.TempDir(), "secret.mp4")
	write(t, secret, read(t, probe.job.Source))
	for name, content := range map[string]string{
		"playlist.mp4":   "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n" + secret + "\n#EXT-X-ENDLIST\n",
		"remote.mp4":     "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n" + s.URL + "/a.mp4\n#EXT-X-ENDLIST\n",
		"concat.mp4":     "ffconcat version 1.0\nfile '" + secret + "'\n",
		"remoteconc.mp4": "ffconcat version 1.0\nfile '" + s.URL + "/a.mp4'\n",
		"dash.mp4": `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" ` +
			`mediaPresentationDuration="PT3S"><Period><AdaptationSet mimeType="video/mp4"><Representation id="0" ` +
			`bandwidth="1"><BaseURL>` +
			s.URL + `/a.mp4</BaseURL></Representation></AdaptationSet></Period></MPD>`,
		"session.sdp.mp4": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n" +
			"a=rtpmap:96 H264/90000\n",
		"picture%d.mp4": "\x89PNG\r\n\x1a\n",
	} {
		path := filepath.Join(filepath.Dir(secret), name)
		write(t, path, content)
		h := newHarness(t, path)
		in, err := h.ingest(t.Context(), h.job)
		if err == nil {
			t.Errorf("%s was accepted as %+v", name, in.Info)
			continue
		}
		wantPermanent(t, name, err)
		if names := list(t, filepath.Join(h.DataDir, "tasks")); len(names) != 0 {
			t.Errorf("%s: left behind: %q", name, names)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("a server got %d requests", n)
	}
}

func TestIngest_RejectsWhatIsNotMedia(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "text.mp4"), "just words")
	write(t, filepath.Join(dir, "empty.mp4"), "")
	for _, source := range []string{
		filepath.Join(dir, "text.mp4"), filepath.Join(dir, "empty.mp4"), filepath.Join(dir, "none.mp4"), dir,
		"relative.mp4", "rtsp://camera/1", "http://169.254.169.254/latest/meta-data", "",
	} {
		h := newHarness(t, source)
		_, err := h.ingest(t.Context(), h.job)
		wantPermanent(t, source, err)
		if names := list(t, filepath.Join(h.DataDir, "tasks")); len(names) != 0 {
			t.Errorf("%s: left behind: %q", source, names)
		}
	}
}

func TestIngest_DownloadsOnlyFromAllowedNetworks(t *testing.T) {
	t.Parallel()
	h := newHarness(t, clips.picture)
	s := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(h.job.Source))))
	defer s.Close()
	h.job.Source = s.URL + "/picture.mp4?token=secret"
	_, err := h.ingest(t.Context(), h.job)
	wantPermanent(t, "without being allowed", err)
	if !errors.Is(err, ssrf.ErrProhibitedIP) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	h.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	in := h.mustIngest()
	if in.Method != "download" || in.Name != "picture.mp4" || in.Info.Video == nil {
		t.Errorf("got %+v", in)
	}
	h.job.Source = s.URL + "/none.mp4"
	_, err = h.ingest(t.Context(), h.job)
	wantPermanent(t, "404", err)
	if _, err := os.Stat(filepath.Join(h.TaskDir(h.job.Task), in.File)); err != nil {
		t.Errorf("a failed attempt removed the source: %v", err)
	}
}

func TestStages_RetryHostErrorsWithAdvice(t *testing.T) {
	t.Parallel()
	base, m := readyHarness(t)
	for name, c := range map[string]struct {
		change func(c *Config)
		want   string
	}{
		"no tools": {
			func(c *Config) { c.Tools.FFmpeg, c.Tools.FFprobe = "/none/a", "/none/b" }, "apt-get install ffmpeg",
		},
		"no data directory":      {func(c *Config) { c.DataDir += "/gone" }, "is its disk mounted?"},
		"data directory not set": {func(c *Config) { c.DataDir = "" }, "no data directory is configured"},
		"another host's data":    {func(c *Config) { c.DataDir = t.TempDir() }, "does not exist on this host"},
		"too little space":       {func(c *Config) { c.Reserve = 1 << 60 }, "not enough disk space"},
		"data directory a file":  {func(c *Config) { c.DataDir = clips.picture }, "is not a directory"},
	} {
		h := *base
		c.change(&h.Config)
		results := map[string]error{}
		_, results["transcode"] = h.transcode(t.Context(), h.job, m.in, chunkSpec{})
		if c.want != "does not exist on this host" {
			_, results["ingest"] = h.ingest(t.Context(), h.job)
		}
		for stage, err := range results {
			wantRetry(t, name+", "+stage, err)
			if err := settle(err); err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: got %q, want %q", name, stage, err, c.want)
			}
		}
	}
	if exists(base.DataDir + "/gone") {
		t.Error("a missing data directory was created")
	}
	h := *base
	h.PublishDir += "/gone"
	_, err := h.tryPublish(m)
	wantRetry(t, "no publish directory", err)
	if exists(h.PublishDir) {
		t.Error("a missing publish directory was created")
	}
	if names := list(t, base.TaskDir(base.job.Task)); len(names) != 4 {
		t.Errorf("files after that: %q", names)
	}
}

func TestTranscode_LeavesNothingWhenCancelled(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	in := m.in
	// This ffmpeg starts and never ends.
	started := filepath.Join(t.TempDir(), "started")
	h.Tools.FFmpeg = filepath.Join(t.TempDir(), "ffmpeg")
	h.Tools.Sandbox = "off" // it writes outside its directory
	write(t, h.Tools.FFmpeg,
		"#!/bin/sh\nfor a; do [ \"$a\" = -progress ] && { : >'"+started+"'; exec sleep 600; }; done\nexec ffmpeg \"$@\"\n")
	if err := os.Chmod(h.Tools.FFmpeg, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := h.transcode(ctx, h.job, in, chunkSpec{})
		done <- classify(ctx, err, 1)
	}()
	for !exists(started) {
		select {
		case err := <-done:
			t.Fatalf("ended before it was cancelled: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel(stages.ErrDraining)
	if err := <-done; !errors.Is(err, stages.ErrDraining) {
		t.Errorf("got %v", err)
	}
	if names := list(t, h.TaskDir(h.job.Task)); len(names) != 4 {
		t.Errorf("files: %q", names)
	}
}

func TestWorkdir_IsNotSharedByAttempts(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	in := m.in
	var results [3]Transcode
	var errs [3]error
	done := make(chan struct{})
	for i := range results {
		go func() {
			results[i], errs[i] = h.transcode(h.t.Context(), h.job, in, chunkSpec{})
			done <- struct{}{}
		}()
	}
	for range results {
		<-done
	}
	dirs := map[string]bool{}
	for i, r := range results {
		if errs[i] != nil {
			t.Errorf("attempt %d: %v", i, errs[i])
		}
		dirs[r.Dir] = true
	}
	if len(dirs) != len(results) {
		t.Errorf("directories %v", dirs)
	}
	last := list(t, h.TaskDir(h.job.Task))
	err := h.Tools.Check(t.Context(), in.Info, filepath.Join(h.TaskDir(h.job.Task), last[len(last)-1]), results[0].Output)
	if err != nil {
		t.Errorf("the newest of %q: %v", last, err)
	}
}

func TestAssemble_RejectsDamagedRendition(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	p := h.mustPublish(m)
	old := read(t, filepath.Join(h.PublishDir, p.Master))

	tr := h.mustTranscode(m.in)
	segments, err := filepath.Glob(filepath.Join(h.TaskDir(h.job.Task), tr.Dir, "*", "*.m4s"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("segments: %q, %v", segments, err)
	}
	if err := os.Truncate(segments[0], 100); err != nil {
		t.Fatal(err)
	}
	_, err = h.assemble(t.Context(), h.job, m.in, tr, m.md)
	wantPermanent(t, "damaged segment", err)
	if !errors.Is(err, media.ErrMismatch) || !strings.Contains(err.Error(), "run stage transcode again") {
		t.Errorf("got %v", err)
	}
	if read(t, filepath.Join(h.PublishDir, p.Master)) != old {
		t.Error("the published video changed")
	}
	wantPlayable(t, filepath.Join(h.PublishDir, p.Master), m.tr.Output.Video)
}

func TestTranscode_RequiresSpaceForLadder(t *testing.T) {
	t.Parallel()
	info := &media.Info{Duration: 100}
	rungs := []media.Rung{{VideoBitrate: 8_000_000}, {VideoBitrate: 800_000}, {AudioBitrate: 80_000}}
	if got := estimateSize(info.Duration, rungs); got != 111_000_000 {
		t.Errorf("estimate %d", got)
	}
	if err := diskspace.Check(t.TempDir(), 1, 1<<60); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	wantPermanent(t, "more than the whole disk", diskspace.Check(t.TempDir(), 1<<60, 0))
}

func TestStages_PublishDamagedSourceWithWarning(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.ts", "a.mp4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, clips.picture)
			h.job.Source = filepath.Join(t.TempDir(), name)
			clip := exec.Command("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=12",
				"-preset", "ultrafast", "-c:v", "libx264", "-g", "25", "-pix_fmt", "yuv420p", h.job.Source)
			if text, err := clip.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			b := []byte(read(t, h.job.Source))
			clear(b[len(b)/2 : len(b)*6/10])
			if err := os.WriteFile(h.job.Source, b, 0o644); err != nil {
				t.Fatal(err)
			}
			m := h.mustMake()
			var said Description
			text := read(t, filepath.Join(h.TaskDir(h.job.Task), m.as.Dir, metadataFile))
			if err := json.Unmarshal([]byte(text), &said); err != nil {
				t.Fatal(err)
			}
			if said.Damage == nil || said.Damage.Seconds < 0.5 || said.Damage.Seconds > 3 || len(said.Warnings) == 0 {
				t.Errorf("metadata.json says %s", text)
			}
			if len(m.tr.Warnings) != 1 || !strings.HasPrefix(m.tr.Warnings[0], "the source is damaged: about ") {
				t.Errorf("the result warns %q", m.tr.Warnings)
			}
			kept := read(t, filepath.Join(h.TaskDir(h.job.Task), m.md.Dir, metadataFile))
			if strings.Contains(kept, "damage") {
				t.Errorf("the result of stage metadata changed: %s", kept)
			}
		})
	}
}
