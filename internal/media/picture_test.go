package media

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func readJPEG(t *testing.T, file string) image.Image {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	img, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestPosterAvoidsBlackAndFitsItsSize(t *testing.T) {
	t.Parallel()
	src := clip(t, "a.mp4", "-f lavfi -i testsrc2=s=1600x200:r=10:d=12 -vf drawbox=c=black:t=fill:enable='lt(t\\,5)' -g 10"+h264)
	info, err := quick.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "poster.jpg")
	if err := quick.Poster(t.Context(), src, info, file); err != nil {
		t.Fatal(err)
	}
	img := readJPEG(t, file)
	if size := img.Bounds().Size(); size != image.Pt(1280, 160) {
		t.Errorf("size %v; want 1280x160", size)
	}
	if got := corners(t, file); got == [4]string{"black", "black", "black", "black"} {
		t.Error("it is black")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v beside the poster", err, entries)
	}
}

func TestPosterOfASongIsItsCover(t *testing.T) {
	t.Parallel()
	src := clip(t, "a.mp3", tone+"-f lavfi -i color=red:s=64x48:d=0.1:r=10 -map 0 -map 1 -c:v mjpeg -pix_fmt yuvj420p -disposition:v attached_pic -c:a libmp3lame")
	info, err := quick.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "poster.jpg")
	if err := quick.Poster(t.Context(), src, info, file); err != nil {
		t.Fatal(err)
	}
	if size := readJPEG(t, file).Bounds().Size(); size != image.Pt(64, 48) {
		t.Errorf("size %v; want 64x48", size)
	}
	if _, err := quick.Storyboard(t.Context(), t.TempDir(), info, &Output{}); !errors.Is(err, ErrNoPicture) {
		t.Errorf("storyboard: %v; want ErrNoPicture", err)
	}
}

func TestSoundAloneHasNoPoster(t *testing.T) {
	t.Parallel()
	src := clip(t, "a.wav", tone)
	info, err := quick.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	if err := quick.Poster(t.Context(), src, info, filepath.Join(t.TempDir(), "p.jpg")); !errors.Is(err, ErrNoPicture) {
		t.Errorf("error %v; want ErrNoPicture", err)
	}
}

func TestPosterOfAnOddSourceIsAPicture(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"interlaced.mpg": "-f lavfi -i testsrc2=s=320x240:r=50:d=0.2 -vf tinterlace=interleave_top,fieldorder=tff -flags +ildct+ilme -c:v mpeg2video",
		"one frame.mkv":  "-f lavfi -i testsrc2=s=320x240:r=1:d=1 -c:v ffv1",
		"one pixel.mkv":  "-f lavfi -i color=red:s=2x2:r=10:d=1,format=yuv444p,scale=1:1 -c:v ffv1",
		"hdr.mkv": "-f lavfi -i testsrc2=s=320x240:r=10:d=1 -vf format=yuv420p10le,setparams=color_trc=smpte2084:color_primaries=bt2020:colorspace=bt2020nc " +
			"-color_trc smpte2084 -color_primaries bt2020 -colorspace bt2020nc" + h264,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := clip(t, name, args)
			info, err := quick.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "poster.jpg")
			if err := quick.Poster(t.Context(), src, info, file); err != nil {
				t.Fatal(err)
			}
			if size := readJPEG(t, file).Bounds().Size(); size.X%2+size.Y%2 != 0 {
				t.Errorf("size %v", size)
			}
		})
	}
}

// The picture is red in the first half and blue in the second. Of the long one, only
// keyframes are decoded.
func TestStoryboardShowsTheTimeItSays(t *testing.T) {
	t.Parallel()
	const colour = "-f lavfi -i color=%s:s=%s:r=%d:d=%d"
	halves := func(rate, length int) func(t *testing.T) string {
		return func(t *testing.T) string {
			return clip(t, "a.mp4", fmt.Sprintf(colour, "red", "320x180", rate, length)+fmt.Sprintf(",drawbox=c=blue:t=fill:enable='gte(t\\,%d)'", length/2)+h264)
		}
	}
	for name, c := range map[string]struct {
		source func(t *testing.T) string
		count  int
		cue    string
	}{
		"short": {halves(10, 8), 8, "00:00:03.000 --> 00:00:04.000\nstoryboard-001.jpg#xywh=480,0,160,90\n"},
		"long":  {halves(2, 480), 100, "00:00:52.800 --> 00:00:57.600\nstoryboard-001.jpg#xywh=160,90,160,90\n"},
		"another size in the second half": {func(t *testing.T) string {
			return joined(t, fmt.Sprintf(colour, "red", "320x180", 10, 4)+h264, fmt.Sprintf(colour, "blue", "640x360", 10, 4)+" -output_ts_offset 4"+h264)
		}, 8, "00:00:03.000 --> 00:00:04.000\nstoryboard-001.jpg#xywh=480,0,160,90\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := c.source(t)
			info, err := quick.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			out, err := quick.Transcode(t.Context(), src, info, Ladder(info), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			b := out.Storyboard
			if b == nil || b.Count != c.count || b.Width != 160 || b.Height != 90 || len(b.Sheets) != 1 {
				t.Fatalf("%+v", b)
			}
			img := readJPEG(t, filepath.Join(dir, StoryboardFolder, b.Sheets[0]))
			for i := range b.Count {
				r, _, blue, _ := img.At(i%b.Columns*b.Width+80, i/b.Columns*b.Height+45).RGBA()
				if red := i < b.Count/2; red != (r > blue) {
					t.Errorf("picture %d is red: %v; want %v", i, !red, red)
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, StoryboardFolder, b.VTT))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), c.cue) {
				t.Errorf("no %q in\n%s", c.cue, text)
			}
		})
	}
}

func TestStoryboardLayout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		duration      float64
		interval      float64
		count         int
		columns, rows int
	}{
		{0.3, 0.3, 1, 1, 1}, {5, 1, 5, 5, 1}, {30.5, 1, 31, 10, 4}, {100, 1, 100, 10, 10}, {600, 6, 100, 10, 10}, {7200, 10, 720, 10, 10},
	}
	for _, tt := range tests {
		b := layOut(tt.duration, 1920, 1080)
		if b.Interval != tt.interval || b.Count != tt.count || b.Columns != tt.columns || b.Rows != tt.rows {
			t.Errorf("%v s: %+v; want %+v", tt.duration, b, tt)
		}
	}
}

// ffmpeg reports nothing until each output has begun, and ffmpeg 7 writes nothing of
// any until each has a frame.
func TestTranscode_ReportsProgressAndKeepsNoFramesInMemory(t *testing.T) {
	t.Parallel()
	tools := quick
	tools.Sandbox = SandboxOff
	tools.FFmpeg = script(t, `case $* in *-stats_period*) exec ffmpeg -readrate 5 "$@" ;; esac; exec ffmpeg "$@"`)
	src := clip(t, "a.mp4", "-f lavfi -i testsrc2=s=1280x720:r=50:d=15"+h264) // 1 GB, decoded
	info, err := tools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	tools.Memory = 600 << 20
	seen := []float64{} // belongs to Transcode until it returns
	ladder := Ladder(info)
	if _, err := tools.Transcode(t.Context(), src, info, ladder[len(ladder)-1:], t.TempDir(), func(p Progress) { seen = append(seen, p.Percent) }); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(seen, func(percent float64) bool { return percent > 10 && percent < 90 }) {
		t.Errorf("percentages: %v", seen)
	}
}
