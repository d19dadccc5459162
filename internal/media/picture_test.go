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
	if _, err := quick.Storyboard(t.Context(), src, info, t.TempDir()); !errors.Is(err, ErrNoPicture) {
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
			if _, err := quick.Storyboard(t.Context(), src, info, t.TempDir()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The picture is red for four seconds and blue for as long.
func TestStoryboardShowsTheTimeItSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keyframes  string
		transcoded bool
	}{{"2", false}, {"1000", false}, {"1000", true}} {
		keyframes := c.keyframes
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			src := clip(t, "a.mp4", "-f lavfi -i color=red:s=320x180:r=10:d=8,drawbox=c=blue:t=fill:enable='gte(t\\,4)' -g "+keyframes+h264)
			info, err := quick.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			b, err := (*Storyboard)(nil), error(nil)
			if c.transcoded {
				var out *Output
				if out, err = quick.Transcode(t.Context(), src, info, Ladder(info), dir, nil); err == nil {
					b, dir = out.Storyboard, filepath.Join(dir, StoryboardFolder)
				}
			} else {
				b, err = quick.Storyboard(t.Context(), src, info, dir)
			}
			if err != nil {
				t.Fatal(err)
			}
			if b.Interval != 1 || b.Count != 8 || b.Width != 160 || b.Height != 90 || len(b.Sheets) != 1 {
				t.Fatalf("%+v", b)
			}
			img := readJPEG(t, filepath.Join(dir, b.Sheets[0]))
			for i := range b.Count {
				r, _, blue, _ := img.At(i%b.Columns*b.Width+80, i/b.Columns*b.Height+45).RGBA()
				if red := i < 4; red != (r > blue) {
					t.Errorf("picture %d is red: %v; want %v", i, !red, red)
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, b.VTT))
			if err != nil {
				t.Fatal(err)
			}
			if want := "00:00:03.000 --> 00:00:04.000\nstoryboard-001.jpg#xywh=480,0,160,90\n"; !strings.Contains(string(text), want) {
				t.Errorf("no %q in\n%s", want, text)
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
		b := layOut(&Info{Duration: tt.duration, Video: &Video{Width: 1920, Height: 1080}})
		if b.Interval != tt.interval || b.Count != tt.count || b.Columns != tt.columns || b.Rows != tt.rows {
			t.Errorf("%v s: %+v; want %+v", tt.duration, b, tt)
		}
	}
}

// ffmpeg reports nothing until each output has begun, also the sheet of the storyboard.
func TestTranscode_ReportsProgressBeforeTheFirstSheetIsFull(t *testing.T) {
	t.Parallel()
	tools := quick
	tools.Sandbox = SandboxOff
	tools.FFmpeg = script(t, `case $* in *-stats_period*) exec ffmpeg -readrate 2 "$@" ;; esac; exec ffmpeg "$@"`)
	src := clip(t, "a.mp4", filmed+"6"+h264)
	info, err := tools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	seen := []float64{} // belongs to Transcode until it returns
	if _, err := tools.Transcode(t.Context(), src, info, Ladder(info), t.TempDir(), func(p Progress) { seen = append(seen, p.Percent) }); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(seen, func(percent float64) bool { return percent > 10 && percent < 90 }) {
		t.Errorf("percentages: %v", seen)
	}
}
