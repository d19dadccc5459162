package media

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/browsertest"
)

const (
	testPictures = "-f lavfi -i testsrc2=s=128x96:r=50:d="
	testTones    = " -f lavfi -i sine=r=48000:d="
)

// tailLengths are sources whose last segment would be too short for players.
func tailLengths() map[string]string {
	all := map[string]string{
		"one-frame.mkv":    testPictures + "0.02" + h264,
		"longer-sound.mkv": testPictures + "6" + testTones + "6.03" + h264 + "-c:a pcm_s16le",
		"late-picture.mkv": "-itsoffset 1.9 " + testPictures + "5" + testTones +
			"6.9 -c:v libx264 -preset veryfast -c:a aac",
		"slides.mkv": "-f lavfi -i testsrc2=s=128x96:r=1:d=2 -itsoffset 0" + testTones +
			"12.6 -vf setpts=N*5.3/TB -fps_mode passthrough -enc_time_base 1:1000" + h264 + "-c:a aac",
		"sound-alone.mp3": testTones + "6.02 -c:a libmp3lame",
		"eight-tracks.mkv": testPictures + "6.02" + testTones + "6.02 -map 0" +
			strings.Repeat(" -map 1", 8) + h264 + "-c:a aac",
		"flac.mkv":  testPictures + "6" + testTones + "6" + h264 + "-c:a flac",
		"opus.webm": testPictures + "6.02" + testTones + "6.02 -c:v libvpx -deadline realtime -c:a libopus",
		// In two sizes.
		"twelve-seconds.mkv": "-f lavfi -i testsrc2=s=640x360:r=25:d=12.04" + testTones + "12.04" + h264 + "-c:a aac",
	}
	for _, d := range []string{"6.02", "6.5"} { // joined with the segment before, and not
		all["silent-"+d+".mkv"] = testPictures + d + h264
		all["sound-"+d+".mp4"] = testPictures + d + testTones + d + h264 + "-c:a aac"
	}
	return all
}

func TestPlayers_ReachTheEndWithAnyTail(t *testing.T) {
	t.Parallel()
	browser := browsertest.Require(t)
	videos := make(map[string]browsertest.Video)
	for name, args := range tailLengths() {
		r := publish(t, makeClip(t, name, args))
		videos[name] = browsertest.Video{Dir: r.dir, Length: time.Duration(r.info.Duration * float64(time.Second))}
	}
	browser.Play(t, videos, browsertest.PlayOptions{
		Seeks: []string{"twelve-seconds.mkv", "opus.webm", "slides.mkv", "sound-alone.mp3"},
	})
}

func TestTranscode_MergesShortLastSegment(t *testing.T) {
	t.Parallel()
	tests := []struct {
		length   string
		segments int
	}{
		{"6", 1}, {"6.02", 1}, {"6.44", 1}, {"6.6", 2}, {"12.04", 2}, {"0.04", 1},
	}
	for _, tt := range tests {
		t.Run(tt.length, func(t *testing.T) {
			t.Parallel()
			r := publish(t,
				makeClip(t, "a.mkv", testPictures+tt.length+testTones+tt.length+" -map 0 -map 1 -map 1"+h264+"-c:a pcm_s16le"))
			for _, v := range append(r.out.Video, r.out.Audio...) {
				if v.Segments != tt.segments {
					t.Errorf("%s has %d segments; want %d", v.Name, v.Segments, tt.segments)
				}
				if files, err := filepath.Glob(filepath.Join(r.dir, v.Name, "seg-*")); err != nil || len(files) != v.Segments {
					t.Errorf("%v: %s has the files %q", err, v.Name, files)
				}
				for i := range v.Segments {
					wantBrands(t, filepath.Join(r.dir, v.Name, fmt.Sprintf(segmentPattern, i)))
				}
			}
		})
	}
}

// wantBrands checks that a segment has its brands, directly followed by its
// fragments.
func wantBrands(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const styp = "\x00\x00\x00\x1cstypmsdh\x00\x00\x00\x00msdhcmfscmff"
	if !strings.HasPrefix(string(text), styp) || strings.Contains(string(text[:200]), "sidx") {
		t.Errorf("%s begins with %q; want %q", file, text[:min(100, len(text))], styp)
	}
}
