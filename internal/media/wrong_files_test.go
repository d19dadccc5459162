package media

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// wrongFiles are real files that were published wrongly, without an error: by frames and seconds.
var wrongFiles = map[string]struct {
	frames  int64
	seconds float64
}{
	"bt2020sdr.mp4": {25, 1}, "flv_reset2.flv": {350, 13}, "mp2_mono_change.ts": {300, 12}, "mpeg4_nostss.mp4": {600, 24},
	"mpts.ts": {50, 2}, "orient_square.webm": {200, 8}, "pcm51_centre.mkv": {25, 1}, "pid_change.ts": {400, 16},
	"pq_p3.mp4": {25, 1}, "prores_lr.mov": {50, 2}, "raw55.h264": {138, 5.52}, "ycgco.mkv": {25, 1},
}

func publishWrongFiles(t *testing.T) map[string]result {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	dir := filepath.Join(mediaDir(), "fail")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the directory of real files, " + dir + ", does not exist")
	}
	all := make(map[string]result)
	for name := range wrongFiles {
		all[name] = publish(t, filepath.Join(dir, name))
	}
	return all
}

func TestTranscode_PublishesFilesRightThatCameOutWrong(t *testing.T) {
	t.Parallel()
	all := publishWrongFiles(t)
	for name, want := range wrongFiles {
		r := all[name]
		if r.out.Expected != want.frames || !isNear(r.out.Duration, want.seconds, 0.1) {
			t.Errorf("%s has %d frames in %.3f s; want %d in %.3f", name, r.out.Expected, r.out.Duration, want.frames, want.seconds)
		}
	}
	master := func(name string) string { return filepath.Join(all[name].dir, MasterName) }
	flashes, beeps := flashTimes(t, master("mp2_mono_change.ts")), beepTimes(t, master("mp2_mono_change.ts"))
	for i := range flashes {
		if len(beeps) != len(flashes) || !isNear(beeps[i], flashes[i], 0.05) {
			t.Fatalf("flashes at %.3f, beeps at %.3f", flashes, beeps)
		}
	}
	for _, tt := range []struct {
		file        string
		left, right float64
	}{{"prores_lr.mov", 440, 880}, {"mpts.ts", 880, 880}} {
		if left, right := frequencies(t, master(tt.file)); !isNear(left, tt.left, 5) || !isNear(right, tt.right, 5) {
			t.Errorf("%s has %.0f and %.0f Hz; want %.0f and %.0f", tt.file, left, right, tt.left, tt.right)
		}
	}
	if level := sideLevels(t, master("pcm51_centre.mkv"))[0]; level[0] < -30 || !isNear(level[0], level[1], 0.5) {
		t.Errorf("the centre of pcm51_centre.mkv has %.1f dB", level)
	}
	t.Run("players reach the end", func(t *testing.T) {
		browser := browsertest.Require(t)
		videos := make(map[string]browsertest.Video)
		for name, r := range all {
			videos[name] = browsertest.Video{Dir: r.dir, Length: time.Duration(r.out.Duration * float64(time.Second))}
		}
		browser.Play(t, videos, browsertest.PlayOptions{})
	})
}

// frequencies are those of the tones on both sides, by how often they rise through zero. Noise of the encoder does not
// count.
func frequencies(t *testing.T, file string) (left, right float64) {
	t.Helper()
	raw := ffmpeg(t, "-i", file, "-map", "0:a:0", "-ss", "0.2", "-t", "0.6", "-ac", "2", "-ar", "48000", "-f", "f32le", "-")
	const noise = 0.02
	var rises [2]int
	var isLow [2]bool
	for i := 0; i+8 <= len(raw); i += 8 {
		for side := range 2 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(raw[i+4*side:]))
			if isLow[side] && v > noise {
				rises[side]++
			}
			isLow[side] = v < -noise || isLow[side] && v <= noise
		}
	}
	seconds := float64(len(raw)) / 8 / 48000
	return float64(rises[0]) / seconds, float64(rises[1]) / seconds
}
