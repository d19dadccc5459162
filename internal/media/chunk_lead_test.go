package media

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// signalNoise returns the luma's PSNR of every frame of a rendition, of a source with the same frames.
func signalNoise(t *testing.T, r result) (list []float64) {
	t.Helper()
	v := r.out.Video[0]
	out := ffmpeg(t, "-i", filepath.Join(r.dir, v.Playlist), "-i", r.src, "-lavfi", fmt.Sprintf(
		"[1:v]scale=w=%d:h=%d:flags=bicubic:out_color_matrix=bt709:out_range=tv,format=yuv420p,setpts=N/25/TB[b];"+
			"[0:v]setpts=N/25/TB[a];[a][b]psnr=stats_file=-:shortest=1", v.Width, v.Height), "-f", "null", "-")
	for line := range strings.Lines(string(out)) {
		_, text, _ := strings.Cut(line, "psnr_y:")
		text, _, _ = strings.Cut(text, " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			list = append(list, min(value, 99))
		}
	}
	if int64(len(list)) != r.out.Expected {
		t.Fatalf("%d frames are compared; want %d", len(list), r.out.Expected)
	}
	return list
}

// seamLoss returns how many dB worse the frames after a seam are than in an undivided transcode, on average: the
// first one, and the first six.
func (d divided) seamLoss(t *testing.T, whole result) (first, six float64) {
	t.Helper()
	got, want := signalNoise(t, d.result), signalNoise(t, whole)
	seams, at := float64(len(d.plan.Chunks)-1), int64(0)
	for _, c := range d.plan.Chunks[:len(d.plan.Chunks)-1] {
		at += c.Frames
		first += (want[at] - got[at]) / seams
		for i := at; i < at+6; i++ {
			six += (want[i] - got[i]) / seams / 6
		}
	}
	return first, six
}

// CUELIGHT_TEST_CAMPAIGN=1 also compares the test media.
func TestTranscodeChunk_BeginsAsGoodAsAnUndividedTranscode(t *testing.T) {
	t.Parallel()
	files := []string{makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=320x180:r=25:d=18 -c:v libx264 -preset ultrafast -crf 10 -g 70")}
	if os.Getenv("CUELIGHT_TEST_CAMPAIGN") != "" {
		for _, name := range dividedMedia {
			files = append(files, filepath.Join(mediaDir(), name))
		}
	}
	for _, src := range files {
		d := probed(t, src)
		if d.divide(t, 6*time.Second); d.plan.Reason != "" {
			t.Logf("%s is not divided: %s", filepath.Base(src), d.plan.Reason)
			continue
		}
		whole := d.whole(t)
		d.transcodePieces(t)
		d.join(t)
		first, six := d.seamLoss(t, whole)
		t.Logf("%s: the first frame after a seam is %.2f dB worse, the first six %.2f dB", filepath.Base(src), first, six)
		if first > 0.5 || six > 0.5 {
			t.Errorf("%s: want at most 0.5 dB", filepath.Base(src))
		}
	}
}
