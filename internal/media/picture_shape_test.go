package media

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// whiteBox measures a white square that is shown on black at a time, in a picture 160 pixels wide.
func whiteBox(t *testing.T, file string, at float64) (w, h int) {
	t.Helper()
	pixels := ffmpeg(t, "-i", file, "-map", "0:v:0", "-vf", fmt.Sprintf("trim=start=%.3f,scale=160:-2,format=gray", at),
		"-frames:v", "1", "-f", "rawvideo", "-")
	columns, rows := map[int]bool{}, map[int]bool{}
	for i, p := range pixels {
		if p > 128 {
			columns[i%160], rows[i/160] = true, true
		}
	}
	return len(columns), len(rows)
}

// square is a black picture with a white square in the middle, in pixels of a shape.
func square(w, h int, sar float64, seconds int) string {
	side := min(float64(w)*sar, float64(h)) / 2
	return fmt.Sprintf("-f lavfi -i color=black:s=%dx%d:r=10:d=%d,drawbox=x=(iw-w)/2:y=(ih-h)/2:w=%.0f:h=%.0f:c=white:t=fill,"+
		"setsar=%.4f ", w, h, seconds, side/sar, side, sar)
}

// joinedVP8 joins two clips to one WebM, as a browser's recorder does when a telephone is turned.
func joinedVP8(t *testing.T, parts ...string) string {
	t.Helper()
	list := ""
	for _, args := range parts {
		list += fmt.Sprintf("file %s\n", makeClip(t, "part.webm", args+"-c:v libvpx -deadline realtime -cpu-used 8 -g 10"))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "list"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "joined.webm")
	ffmpeg(t, "-f", "concat", "-safe", "0", "-i", filepath.Join(dir, "list"), "-c", "copy", file)
	return file
}

// seesPixelShapes reports whether ffmpeg sees that the shape of pixels changes within a stream.
func seesPixelShapes(t *testing.T) bool {
	t.Helper()
	src := concatenated(t, square(96, 96, 1, 1)+h264, square(96, 96, 2, 1)+h264+"-output_ts_offset 1 ")
	const level = 16 // that of errors
	printed, err := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-loglevel", "error", "-i", src,
		"-vf", fmt.Sprintf("scale=w='96+0*print(sar,%d)':h=96:eval=frame", level), "-f", "null", "-").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	return strings.Contains(string(printed), "1.000000") && strings.Contains(string(printed), "2.000000")
}

func TestTranscode_FitsPicturesOfOtherShapes(t *testing.T) {
	t.Parallel()
	const first, later, interlaced = h264 + "-g 5 ", h264 + "-g 5 -output_ts_offset 2 ", h264 + "-g 5 -flags +ildct+ilme "
	for name, c := range map[string]struct {
		make func(t *testing.T) string
		side int // of the square in the second part, in a picture 160 pixels wide
		size [2]int
	}{
		"turned": {func(t *testing.T) string {
			return joinedVP8(t, square(320, 180, 1, 2), square(180, 320, 1, 2))
		}, 25, [2]int{320, 180}},
		"turned upright": {func(t *testing.T) string {
			return concatenated(t, square(180, 320, 1, 2)+first, square(320, 180, 1, 2)+later)
		}, 45, [2]int{180, 320}},
		"other pixels": {func(t *testing.T) string {
			return concatenated(t, square(180, 144, 1.0667, 2)+first, square(180, 144, 1.4222, 2)+later)
		}, 45, [2]int{192, 144}},
		"other pixels and size": {func(t *testing.T) string {
			return concatenated(t, square(180, 144, 1.4222, 2)+first, square(320, 240, 1, 2)+later)
		}, 45, [2]int{256, 144}},
		"larger, of the same shape": {func(t *testing.T) string {
			return concatenated(t, square(160, 120, 1, 2)+first, square(320, 240, 1, 2)+later)
		}, 60, [2]int{160, 120}},
		"interlaced": {func(t *testing.T) string {
			return concatenated(t, square(320, 240, 1, 2)+interlaced, square(320, 180, 1, 2)+interlaced+"-output_ts_offset 2 ")
		}, 45, [2]int{320, 240}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(name, "other pixels") && !seesPixelShapes(t) {
				t.Skip("this ffmpeg gives all pictures of a stream the pixel shape of the first")
			}
			r := publish(t, c.make(t))
			v := r.out.Video[0]
			if r.info.Video.Interlaced != (name == "interlaced") {
				t.Errorf("interlaced: %v", r.info.Video.Interlaced)
			}
			if v.Width != c.size[0] || v.Height != c.size[1] {
				t.Errorf("the picture is %dx%d pixels; want %v", v.Width, v.Height, c.size)
			}
			poster := filepath.Join(t.TempDir(), "poster.jpg")
			if err := fastTools.PosterAt(t.Context(), r.src, r.info, 3, poster); err != nil {
				t.Fatal(err)
			}
			for file, at := range map[string]float64{filepath.Join(r.dir, v.Playlist): 3, poster: 0} {
				if w, h := whiteBox(t, file, at); max(w-h, h-w) > 4 || max(w-c.side, c.side-w) > 4 {
					t.Errorf("%s: the square is %dx%d pixels; want %d", filepath.Base(file), w, h, c.side)
				}
			}
		})
	}
}

func TestTranscodeChunk_FitsPicturesOfOtherShapes(t *testing.T) {
	t.Parallel()
	d := probed(t, joinedVP8(t, square(160, 90, 1, 7), square(90, 160, 1, 7)))
	if d.divide(t, 6*time.Second); len(d.plan.Chunks) != 3 {
		t.Fatalf("the plan is %+v", d.plan)
	}
	whole := d.whole(t)
	d.transcodePieces(t)
	d.join(t)
	d.wantSame(t, whole)
	d.wantPiecesAccepted(t)
	for at, side := range map[float64]int{3: 45, 8: 25, 13: 25} {
		if w, h := whiteBox(t, filepath.Join(d.dir, d.out.Video[0].Playlist), at); max(w-side, side-w, h-side, side-h) > 4 {
			t.Errorf("at %v s, the square is %dx%d pixels; want %d", at, w, h, side)
		}
	}
}
