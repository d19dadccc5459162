package media

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"
)

// damage overwrites a part in the middle of a file's media data.
func damage(t *testing.T, file string, share float64, size int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copy(text[int(share*float64(len(text))):], bytes.Repeat([]byte{0x5a}, size))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A damaged source is either divided with the result of an undivided transcode, or a chunk says that it cannot be.
func TestTranscodeChunk_NeverLosesFramesOfADamagedSource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, args string
		size       int
	}{
		"some bytes of MP4":      {"a.mp4", "-c:v libx264 -preset veryfast -g 60", 60},
		"some frames of MP4":     {"a.mp4", "-c:v libx264 -preset veryfast -g 60", 8000},
		"some bytes of Matroska": {"a.mkv", "-c:v libx264 -preset veryfast -g 60", 60},
		"a cluster of Matroska":  {"a.mkv", "-c:v libx264 -preset veryfast -g 60", 60000},
		"MPEG-4":                 {"a.avi", "-c:v mpeg4 -g 60", 3000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := makeClip(t, c.file, small("25", 18)+c.args)
			damage(t, src, 0.6, c.size)
			d := probed(t, src)
			if d.divide(t, 6*time.Second); d.plan.Reason != "" {
				t.Log(d.plan.Reason)
				return
			}
			for n := range d.plan.Chunks {
				dir := t.TempDir()
				out, err := chunkTools.TranscodeChunk(t.Context(), src, d.info, d.rungs, d.plan, n, dir, nil)
				if errors.Is(err, ErrNotDivisible) {
					t.Log(err)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				d.pieces = append(d.pieces, ChunkPiece{dir, out})
			}
			whole := d.whole(t)
			d.join(t)
			if d.out.Expected != whole.out.Expected || (d.out.Damage == nil) != (whole.out.Damage == nil) {
				t.Errorf("%d frames, damage %+v; undivided %d, %+v", d.out.Expected, d.out.Damage, whole.out.Expected, whole.out.Damage)
			}
			t.Logf("divided %+v, undivided %+v", d.out.Damage, whole.out.Damage)
		})
	}
}
