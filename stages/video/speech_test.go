package video

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/whispertest"
	"github.com/cuelight/cuelight/store"
)

// Only the published files are left, as with Config.KeepSourceCopies.
func TestRecognizeSpeech_WritesDownWhatIsSpokenInAPublishedVideo(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	p := h.mustPublish(m)
	silent := m.tr
	silent.Output = &media.Output{Video: m.tr.Output.Video}
	if err := os.RemoveAll(h.TaskDir(h.job.Task)); err != nil {
		t.Fatal(err)
	}
	program := whispertest.New(t)
	h.Tools.Whisper, h.Tools.WhisperModel = program.Path, program.Model
	if err := h.Tools.CheckWhisper(t.Context()); err != nil {
		t.Error(err)
	}
	const german = "WEBVTT\n\n00:00:00.000 --> 00:00:00.400\n"
	for name, c := range map[string]struct {
		spoken         string
		tr             Transcode
		language, text string
		wantErr        string
	}{
		"a language that is detected":    {spoken: "auto", tr: m.tr, language: "de", text: german + "Guten Tag, &lt;b&gt;\n"},
		"a language that is given":       {spoken: "nl", tr: m.tr, language: "nl", text: german + "Guten Tag\n"},
		"only descriptions of sounds":    {spoken: "fr", tr: m.tr},
		"no sound":                       {spoken: "auto", tr: silent},
		"an unknown language":            {spoken: "eo", tr: m.tr, wantErr: `wrote nothing for the language "eo": error: unknown language`},
		"a model that cannot be loaded":  {spoken: "la", tr: m.tr, wantErr: "whisper-cli ended with code 3: error: failed to initialize"},
		"files that are not there":       {spoken: "auto", tr: withSound(m.tr, "other/index.m3u8"), wantErr: "read playlist"},
		"a playlist that is not correct": {spoken: "auto", tr: withSound(m.tr, "master.m3u8"), wantErr: "playlist master.m3u8: line"},
	} {
		results := func(_ context.Context, stage string) (json.RawMessage, error) {
			return json.Marshal(map[string]any{transcodeStage: c.tr, publishStage: p}[stage])
		}
		got, err := h.RecognizeSpeech(t.Context(), h.job.Task, c.spoken, results)
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s: %v; want %s", name, err, c.wantErr)
			}
		} else if err != nil || got.Language != c.language || string(got.WebVTT) != c.text {
			t.Errorf("%s: %q %q, %v; want %q %q", name, got.Language, got.WebVTT, err, c.language, c.text)
		}
		if exists(h.TaskDir(h.job.Task)) {
			t.Errorf("%s: files are left", name)
		}
	}
}

func withSound(tr Transcode, playlist string) Transcode {
	tr.Output = &media.Output{Audio: []media.Rendition{{Playlist: playlist, Duration: 1}}}
	return tr
}

func TestRecognizeSpeech_ReadsABucket(t *testing.T) {
	t.Parallel()
	hosts := newBucketHosts(t)
	h, m := readyHarness(t)
	h.PublishBucket = hosts.bucket("public")
	p := h.mustPublish(m)
	program := whispertest.New(t)
	h.Tools.Whisper, h.Tools.WhisperModel = program.Path, program.Model
	got, err := h.RecognizeSpeech(t.Context(), store.ID{15: 8}, "nl", func(_ context.Context, stage string) (json.RawMessage, error) {
		return json.Marshal(map[string]any{transcodeStage: m.tr, publishStage: p}[stage])
	})
	if err != nil || got.Language != "nl" {
		t.Errorf("%+v, %v", got, err)
	}
}
