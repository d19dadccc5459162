package media

import (
	"os"
	"path/filepath"
	"testing"
)

// concatenated joins transport streams as recorders do: timestamps jump, and the
// picture size may change.
func concatenated(t *testing.T, parts ...string) string {
	t.Helper()
	var all []byte
	for _, args := range parts {
		b, err := os.ReadFile(makeClip(t, "part.ts", args))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	file := filepath.Join(t.TempDir(), "joined.ts")
	if err := os.WriteFile(file, all, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTranscode_ClosesTimestampJumps(t *testing.T) {
	t.Parallel()
	const part = "-f lavfi -i testsrc2=s=320x240:r=10:d=2 -f lavfi -i sine=d=2" + h264 + "-c:a aac "
	for name, offset := range map[string]string{"back": "", "ahead": "-output_ts_offset 5000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := publish(t, concatenated(t, part, part+offset))
			if !isNear(r.info.Duration, 4, 0.3) || !isNear(r.out.Duration, 4, 0.3) || r.out.Expected < 39 {
				t.Errorf("%.2f s of %.2f s, %d frames; want 40 in 4 s", r.out.Duration, r.info.Duration, r.out.Expected)
			}
		})
	}
}

func TestTranscode_UnifiesChangingPictureSize(t *testing.T) {
	t.Parallel()
	r := publish(t, concatenated(t,
		"-f lavfi -i testsrc2=s=320x240:r=10:d=2"+h264, "-f lavfi -i testsrc2=s=640x360:r=10:d=2 -output_ts_offset 2"+h264))
	if r.out.Expected < 39 || !isNear(r.out.Duration, 4, 0.3) {
		t.Errorf("%d frames in %.2f s; want 40 in 4", r.out.Expected, r.out.Duration)
	}
}

// When frames are repeated, the graph buffers two seconds of them.
func TestTranscode_KeepsFramesWhenSizeChangesAfterPause(t *testing.T) {
	t.Parallel()
	const before = "-f lavfi -i testsrc2=s=320x240:r=10:d=8" + h264
	for name, after := range map[string]string{
		"size":   "-f lavfi -i testsrc2=s=640x360:r=10:d=8 -output_ts_offset 12" + h264,
		"format": "-f lavfi -i testsrc2=s=320x240:r=10:d=8 -output_ts_offset 12 -c:v libx264 -pix_fmt yuv422p ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := publish(t, concatenated(t, before, after))
			// The pause has one or two repeated frames, at 8 and at 10 s.
			n := r.out.Expected
			if r.out.Decoded != 160 || n < 161 || n > 162 || !r.out.Constant || !isNear(r.out.Duration, 20, 0.3) {
				t.Errorf("of %d frames, %d in %.2f s; want all 160, and up to 2 more, in 20 s", r.out.Decoded, n, r.out.Duration)
			}
			r.out.Expected = 141
			if err := checkDecoded(r.info, r.out); err == nil {
				t.Error("lost frames are not noticed")
			}
		})
	}
}

func TestTranscode_LeavesOutUndecodableAudio(t *testing.T) {
	t.Parallel()
	whole := makeClip(t, "a.mkv", "-f lavfi -i testsrc2=s=320x240:r=10:d=2 -f lavfi -i sine=d=2"+h264+"-c:a ac3")
	src := filepath.Join(t.TempDir(), "noise.mkv")
	ffmpeg(t, "-i", whole, "-c", "copy", "-bsf:a", "noise=amount=1", src)
	r := publish(t, src)
	if len(r.out.Video) != 1 || len(r.out.Audio) != 0 || len(r.info.Warnings) == 0 {
		t.Errorf("output %+v; want the picture alone, and a warning", r.out)
	}
	if left, err := os.ReadDir(r.dir); err != nil || len(left) != 4 {
		t.Errorf("%v, %v in the folder; want one rendition, the storyboard and two manifests", err, left)
	}
	alone := filepath.Join(t.TempDir(), "alone.mkv")
	ffmpeg(t, "-i", src, "-map", "0:a", "-c", "copy", alone)
	_, err := fastTools.Probe(t.Context(), alone)
	wantRejected(t, err, "sound")
}
