package video

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// colouredClip makes a video of 4 s that is red, then blue from 2 s on, with a sound of lavfi.
func colouredClip(t *testing.T, sound string) string {
	t.Helper()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	file := filepath.Join(t.TempDir(), "coloured.mp4")
	out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error",
		"-f", "lavfi", "-i", "color=red:s=864x486:r=10:d=2", "-f", "lavfi", "-i", "color=blue:s=864x486:r=10:d=2",
		"-f", "lavfi", "-i", sound, "-filter_complex", "[0][1]concat,noise=alls=20:allf=t[v]", "-map", "[v]",
		"-map", "2", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", file).CombinedOutput()
	if err != nil {
		t.Fatalf("make clip: %v: %s", err, out)
	}
	return file
}

const tone, clicks = "sine=f=500:d=4", `aevalsrc=0.01*sin(2*PI*500*t)+0.5*lt(mod(t\,1)\,0.002):d=4`

const allSettings = `{"title": "t", "renditions": ["1080p", 360, 240], "quality": 38, "preset": "superfast",
	"audio": {"bitrate": "64k", "loudness": -20}, "poster": 3, "visibility": "public"}`

func TestStages_MakeWhatTheParamsAskFor(t *testing.T) {
	t.Parallel()
	source := colouredClip(t, tone)
	h := newHarness(t, source)
	h.job.Params = []byte(allSettings)
	m := h.mustMake()
	p := h.mustPublish(m)
	wantSettings(t, m.tr, filepath.Join(h.PublishDir, p.Generation))
	wantPlayable(t, filepath.Join(h.PublishDir, p.Master), append(m.tr.Output.Video, m.tr.Output.Audio...))
	if len(m.in.Warnings) > 0 || m.in.Settings.Visibility != "" {
		t.Errorf("warnings: %q, visibility %q, which may change", m.in.Warnings, m.in.Settings.Visibility)
	}

	usual := newHarness(t, source)
	usual.job.Params = []byte(`{"quality": "auto"}`)
	got := usual.mustMake()
	if len(got.tr.Output.Video) != 3 || got.tr.Output.Video[1].Bytes <= m.tr.Output.Video[0].Bytes {
		t.Errorf("in all sizes: %+v", got.tr.Output.Video)
	}
	if q := got.tr.Rungs[0].Quality; q < 18 || q > 32 {
		t.Errorf("the automatic CRF is %d", q)
	}
}

// wantSettings checks a published directory of the coloured clip against allSettings.
func wantSettings(t *testing.T, tr Transcode, dir string) {
	t.Helper()
	names := ""
	for _, r := range append(tr.Output.Video, tr.Output.Audio...) {
		names += r.Name + " "
	}
	if names != "360p 240p audio " || tr.Rungs[0].Quality != 38 || tr.Rungs[0].Preset != "superfast" || tr.Rungs[2].AudioBitrate != 64000 {
		t.Errorf("renditions %s of %+v", names, tr.Rungs)
	}
	head, err := os.ReadFile(filepath.Join(dir, "360p", "init.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	segment, err := os.ReadFile(filepath.Join(dir, "360p", "seg-00000.m4s"))
	if err != nil {
		t.Fatal(err)
	}
	if options := regexp.MustCompile(`crf=[0-9.]+`).FindString(string(append(head, segment...))); options != "crf=38.0" {
		t.Errorf("x264 says %q", options)
	}
	if got := loudnessOf(t, filepath.Join(dir, "audio", "index.m3u8")); math.Abs(got+20) > 0.5 {
		t.Errorf("the sound has %.1f LUFS", got)
	}
	poster, err := os.ReadFile(filepath.Join(dir, posterFile))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := jpeg.Decode(bytes.NewReader(poster))
	if err != nil {
		t.Fatal(err)
	}
	if r, b := meanRedAndBlue(picture); r > 100 || b < 150 {
		t.Errorf("the poster has red %.0f and blue %.0f; at 3 s the picture is blue", r, b)
	}
}

func meanRedAndBlue(picture image.Image) (red, blue float64) {
	b := picture.Bounds()
	n := 0.0
	for y := b.Min.Y; y < b.Max.Y; y += 10 {
		for x := b.Min.X; x < b.Max.X; x += 10 {
			r, _, bl, _ := picture.At(x, y).RGBA()
			red, blue, n = red+float64(r>>8), blue+float64(bl>>8), n+1
		}
	}
	return red / n, blue / n
}

func loudnessOf(t *testing.T, file string) float64 {
	t.Helper()
	out, err := exec.Command("ffmpeg", "-nostdin", "-hide_banner", "-i", file, "-map", "0:a", "-af", "ebur128=framelog=verbose",
		"-f", "null", "-").CombinedOutput()
	found := regexp.MustCompile(`I: +(-[0-9.]+) LUFS`).FindSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("measure loudness: %v: %s", err, out)
	}
	number, _ := strconv.ParseFloat(string(found[1]), 64)
	return number
}

// The files that a worker may deliver, and the sound that the check expects, follow from the params, too.
func TestRemoteStages_MakeWhatTheParamsAskFor(t *testing.T) {
	t.Parallel()
	s := newRemoteSite(t)
	s.workLocally(RemoteStageNames()...)
	s.workRemotely(s.url, "key-1")
	// The last is so much quieter than the source that a check without the gain takes it for silence.
	for params, loudness := range map[string]float64{allSettings: -20, strings.Replace(allSettings, "-20", "-40", 1): -40} {
		r, err := s.Submit(t.Context(), store.Submission{Source: colouredClip(t, tone), Params: json.RawMessage(params)})
		if err != nil {
			t.Fatal(err)
		}
		tr, p := s.waitPublished(r.ID)
		if got := loudnessOf(t, filepath.Join(s.PublishDir, p.Generation, "audio", "index.m3u8")); math.Abs(got-loudness) > 0.5 {
			t.Errorf("the sound has %.1f LUFS, want %.0f", got, loudness)
		}
		if loudness == -20 {
			wantSettings(t, tr, filepath.Join(s.PublishDir, p.Generation))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refusals) > 0 {
		t.Errorf("refused: %q", s.refusals)
	}
}

func TestIngest_WarnsOfSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	h := newHarness(t, colouredClip(t, clicks))
	h.job.Params = []byte(`{"poster": 60, "preview": 61, "audio": {"loudness": -5, "surround": true, "default": "fr"},
		"renditions": [2160], "encryption": "aes-128"}`)
	in := h.mustIngest()
	all := fmt.Sprint(in.Warnings)
	for _, want := range []string{
		"the poster is a picture of another time: 60 s is after the end", "dB quieter than -5 LUFS",
		"the preview is the end of the video: 61 s is after it", "no MP4 file, no preview and no automatic captions",
		"there is no surround sound: no audio stream has 5.1", "the default sound is that of the source: it has none in the language fr",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in %s", want, all)
		}
	}
	if rungs := in.ladder(); len(rungs) != 2 || rungs[0].Name != "480p" {
		t.Errorf("with renditions above the source: %+v", rungs)
	}
	if md := h.mustMetadata(in); md.Poster != posterFile {
		t.Errorf("the poster is %q", md.Poster)
	}
}

// A row of SQL passes no code that resolves a profile. Its task is dead at once, and a retry with other params works.
func TestStages_FailForParamsOfSQLThatNothingResolved(t *testing.T) {
	t.Parallel()
	s := newRemoteSite(t)
	s.workLocally()
	var id store.ID
	err := s.pool.QueryRow(t.Context(), `insert into tasks (source, params) values ($1, '{"profile": "web"}') returning id`,
		clips.picture).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the task is dead", func() bool {
		task, err := s.Get(t.Context(), id)
		return err == nil && task.Status == store.StatusDead
	})
	history, err := s.History(t.Context(), id)
	if err != nil || len(history) != 1 || !strings.Contains(history[0].Error, `nothing has resolved the profile "web"`) {
		t.Errorf("%+v, %v", history, err)
	}
	if _, err := s.pool.Exec(t.Context(), `update tasks set params = '{"quality": 39}' where id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `select cuelight_video_retry($1)`, id); err != nil {
		t.Fatal(err)
	}
	if tr, _ := s.waitPublished(id); tr.Rungs[0].Quality != 39 {
		t.Errorf("made with %+v", tr.Rungs[0])
	}
}

func TestStages_PublishThePartThatTheParamsAskFor(t *testing.T) {
	t.Parallel()
	h := newHarness(t, colouredClip(t, tone)) // four seconds
	h.job.Params = []byte(`{"start": "25%", "end": "0:03", "renditions": [240], "audio": {"loudness": -20}, "poster": "75%"}`)
	m := h.mustMake()
	p := h.mustPublish(m)
	if info := m.in.Info; math.Abs(info.Duration-2) > 0.001 || m.tr.Output.Expected != 20 || math.Abs(m.tr.Output.Duration-2) > 0.05 {
		t.Errorf("%.3f s of the source are %d frames, %.3f s", info.Duration, m.tr.Output.Expected, m.tr.Output.Duration)
	}
	wantPlayable(t, filepath.Join(h.PublishDir, p.Master), append(m.tr.Output.Video, m.tr.Output.Audio...))

	for params, want := range map[string]string{
		`{"start": 4}`:               "start is 4.000 s, but the source lasts 4.000 s",
		`{"start": "50%", "end": 1}`: "end is 1.000 s, which is not after start, 2.000 s",
	} {
		h.job.Params = []byte(params)
		if _, err := work(h.Config, h.ingest)(t.Context(), h.job); !stages.IsPermanent(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", params, err)
		}
	}
}

func TestIngest_SaysWhereTheQualityCannotBeMeasured(t *testing.T) {
	t.Parallel()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	slides := filepath.Join(t.TempDir(), "slides.mp4")
	out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=1/5:d=15", "-c:v", "libx264",
		"-preset", "ultrafast", slides).CombinedOutput()
	if err != nil {
		t.Fatalf("make clip: %v: %s", err, out)
	}
	h := newHarness(t, slides)
	h.job.Params = []byte(`{"quality": "auto"}`)
	if in := h.mustIngest(); in.Settings.Quality != 0 || !strings.Contains(strings.Join(in.Warnings, " "), "quality is that of the worker") {
		t.Errorf("quality %d, warnings %q", in.Settings.Quality, in.Warnings)
	}
}
