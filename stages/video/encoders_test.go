package video

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/internal/encodertest"
	"github.com/cuelight/cuelight/stages"
)

// hardwareTools use a stand-in for a graphics card.
func hardwareTools(f encodertest.FFmpeg, encoders ...string) Tools {
	return Tools{FFmpeg: f.Path, Sandbox: "off", Threads: 1, Encoders: encoders}
}

const failedDevice = "h264_nvenc failed: OpenEncodeSessionEx failed: out of memory (10): (no details); encoded with libx264"

func TestTranscode_TellsThatADeviceFailed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, clips.picture)
	f := encodertest.New(t, encodertest.Start)
	h.Tools = hardwareTools(f, "hardware")
	var mu sync.Mutex
	notes := map[string]float64{}
	h.job.OnProgress = func(p stages.Progress) {
		mu.Lock()
		defer mu.Unlock()
		note := p.Note[:max(strings.LastIndex(p.Note, " "), 0)]
		notes[note] = min(notes[note], p.Percent) // a slow machine reports more than once
	}
	m := h.mustMake()
	if !slices.Equal(m.tr.Warnings, []string{failedDevice}) || m.tr.Output.Encoder != "libx264" {
		t.Errorf("the result is %+v, its output %+v", m.tr, m.tr.Output)
	}
	if percent, ok := notes["h264_nvenc failed, transcoding again with libx264"]; !ok || percent >= 0 {
		t.Errorf("the notes, with the lowest percentage of each, are %v", notes)
	}
	p := h.mustPublish(m)
	wantPlayable(t, filepath.Join(h.PublishDir, p.Master), append(m.tr.Output.Video, m.tr.Output.Audio...))
}

func TestStages_PublishWhatHardwareEncoded(t *testing.T) {
	t.Parallel()
	s := newRemoteSite(t)
	s.workLocally(RemoteStageNames()...)
	for _, c := range []struct {
		mode               encodertest.Mode
		encoder, failed    string
		calls, wantWarning []string
	}{
		{encodertest.OK, "h264_vaapi", "", []string{"h264_vaapi"}, nil},
		{
			encodertest.Middle, "libx264", "h264_vaapi", []string{"h264_vaapi", "libx264"},
			[]string{"h264_vaapi failed on the worker's host; encoded with libx264"},
		},
	} {
		f := encodertest.New(t, c.mode)
		stop := s.workRemotelyWith(s.url, "key-1", hardwareTools(f, "h264_vaapi"))
		task := s.submit(clips.picture)
		tr, p := s.waitPublished(task)
		stop()
		wantPlayable(t, filepath.Join(s.PublishDir, p.Master), append(tr.Output.Video, tr.Output.Audio...))
		if got := f.Calls(t); !slices.Equal(got, c.calls) {
			t.Errorf("%s: the encoders called are %q", c.mode, got)
		}
		if tr.Output.Encoder != c.encoder || tr.Output.FailedEncoder != c.failed || !slices.Equal(tr.Warnings, c.wantWarning) {
			t.Errorf("%s: the result is %+v, its output %+v", c.mode, tr, tr.Output)
		}
		history, err := s.History(t.Context(), task)
		if err != nil || len(history) != attemptsOfTask {
			t.Errorf("%s: the attempt is counted: %+v, %v", c.mode, history, err)
		}
	}
}
