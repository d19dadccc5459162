package video

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The film is divided, and published by a remote worker. Its largest size, again after a retry, has the packets of the source.
func TestStages_CopyThePictureForASize(t *testing.T) {
	t.Parallel()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	run := func(args string) string {
		t.Helper()
		text, err := exec.Command("ffmpeg", append([]string{"-nostdin", "-v", "error"}, strings.Fields(args)...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ffmpeg %s: %v: %s", args, err, text)
		}
		return string(text)
	}
	source := filepath.Join(t.TempDir(), "film.mp4")
	run("-f lavfi -i testsrc2=s=480x360:r=10:d=14 -f lavfi -i sine=d=14 -vf scale=out_color_matrix=bt709:out_range=tv,format=yuv420p " +
		"-c:v libx264 -preset ultrafast -crf 40 -g 25 -colorspace bt709 -color_primaries bt709 -color_trc bt709 " + source)
	s := newWorkingSite(t, 6*time.Second, true)
	task := s.submitWith(source, `{"copy": true, "mp4": "360p", "preview": 5}`)
	for _, want := range []Transcode{{Chunks: 3}, {Undivided: "its picture is copied", Kept: []string{"240p", "audio"}}} {
		tr, p := s.waitPublished(task)
		kept := strings.Join(tr.Kept, " ")
		if tr.Chunks != want.Chunks || tr.Undivided != want.Undivided || kept != strings.Join(want.Kept, " ") {
			t.Errorf("%d chunks, %q, kept %q; want %+v", tr.Chunks, tr.Undivided, kept, want)
		}
		const packets = " -map 0:v -c copy -bsf:v h264_mp4toannexb,filter_units=remove_types=6-9 -f md5 -"
		made := run("-i " + filepath.Join(s.PublishDir, p.MP4) + packets)
		if original := run("-i " + source + packets); made != original {
			t.Errorf("the packets are %s; want %s", made, original)
		}
		if want.Chunks > 0 {
			if err := s.retryRenditions(task, 360); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestIngest_SaysWhyNothingIsCopied(t *testing.T) {
	t.Parallel()
	h := newHarness(t, film(t))
	h.job.Params = []byte(`{"copy": true}`)
	in := h.mustIngest()
	if text := strings.Join(in.Warnings, " "); !strings.Contains(text, "copied nothing: its colours are not BT.709") {
		t.Errorf("warnings %q; want one about colours", in.Warnings)
	}
}
