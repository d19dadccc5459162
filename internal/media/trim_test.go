package media

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// numbered is a source of 25 frames a second whose brightness is their number, modulo 50, with a click in every second.
const numbered = `-f lavfi -i nullsrc=s=4x4:r=25:d=30,geq=lum=20+4*mod(N\,50):cb=128:cr=128,scale=96:64 ` +
	`-f lavfi -i aevalsrc=0.8*sin(2000*PI*t)*lt(mod(t\,1)\,0.05):d=30 -pix_fmt yuv420p `

// trimmed probes a source and keeps a part of it.
func trimmed(t *testing.T, src string, start, end float64) divided {
	t.Helper()
	d := probed(t, src)
	if err := chunkTools.Trim(t.Context(), src, d.info, d.packets, start, end); err != nil {
		t.Fatal(err)
	}
	return d
}

// frameNumbers are those of a numbered source, modulo 50.
func frameNumbers(t *testing.T, file string) (numbers []int) {
	t.Helper()
	for _, luma := range ffmpeg(t, "-i", file, "-map", "0:v:0", "-vf", "format=gray,scale=1:1:flags=area", "-fps_mode", "passthrough",
		"-f", "rawvideo", "-") {
		numbers = append(numbers, int(math.Round((float64(luma)*219/255-4)/4)))
	}
	return numbers
}

// wantNumbers requires the frames from one number to before another.
func (r result) wantNumbers(t *testing.T, from, to int) {
	t.Helper()
	var want []int
	for n := from; n < to; n++ {
		want = append(want, n%50)
	}
	if got := frameNumbers(t, filepath.Join(r.dir, r.out.Video[0].Playlist)); !slices.Equal(got, want) {
		t.Errorf("frames %v\nwant %v", got, want)
	}
}

func (r result) wantClick(t *testing.T, at float64) {
	t.Helper()
	got := firstTime(t, filepath.Join(r.dir, r.out.Audio[0].Playlist), "0:a", "-af",
		"asetnsamples=48,astats=metadata=1:reset=1,ametadata=print:key=lavfi.astats.Overall.Peak_level:file=-", -8)
	if !isNear(got, at, 0.003) {
		t.Errorf("a click at %.3f s; want %.3f", got, at)
	}
}

func TestTrim_KeepsExactlyTheFramesAndTheSoundOfThePart(t *testing.T) {
	t.Parallel()
	const x264 = "-c:v libx264 -preset veryfast -g 70 -c:a aac "
	for _, c := range []struct {
		name, args string
		start, end float64
		from, to   int // frames
		isSought   bool
	}{
		{"a.mp4", x264, 22.41, 25, 561, 625, true},
		{"near.mp4", x264, 3.4, 5.99, 85, 150, false},
		{"end.mp4", x264, 27.2, math.Inf(1), 680, 750, true},
		{"a.mkv", x264, 22.41, 25, 561, 625, true},
		{"a.ts", x264, 22.41, 25, 561, 625, false}, // it would begin between two keyframes, with errors
		{"a.avi", "-c:v mpeg4 -q 2 -c:a pcm_s16le ", 22.41, 25, 561, 625, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := trimmed(t, makeClip(t, c.name, numbered+c.args), c.start, c.end)
			if isSought := d.info.Range.Seek > 0; isSought != c.isSought {
				t.Errorf("it is decoded from %v on", d.info.Range.Seek)
			}
			r := d.whole(t)
			r.wantNumbers(t, c.from, c.to)
			if c.name == "a.mp4" {
				delivered := deliver(t, r.dir, r.info, d.rungs)
				if _, err := deliveryTools.CheckDelivered(t.Context(), d.src, d.info, d.rungs, delivered, r.out); err != nil {
					t.Error(err)
				}
			}
			r.wantClick(t, math.Ceil(float64(c.from)/25)-float64(c.from)/25)
			if want := float64(c.to-c.from) / 25; !isNear(d.info.Duration, want, 0.002) || !isNear(r.out.Duration, want, 0.05) {
				t.Errorf("it lasts %.3f s, planned %.3f; want %.3f", r.out.Duration, d.info.Duration, want)
			}
		})
	}
}

func TestTrim_DividesAPartLikeAWhole(t *testing.T) {
	t.Parallel()
	d := trimmed(t, makeClip(t, "a.mp4", numbered+"-c:v libx264 -preset veryfast -g 40 -c:a aac "), 11.01, 29.5)
	whole := d.whole(t)
	d.divide(t, 6*time.Second)
	if len(d.plan.Chunks) != 3 {
		t.Fatalf("%d chunks, %s; want 3", len(d.plan.Chunks), d.plan.Reason)
	}
	d.transcodePieces(t)
	d.join(t)
	d.wantSame(t, whole)
	d.wantNumbers(t, 276, 738)
	d.wantPiecesAccepted(t)
}

func TestTrim_RefusesPartsThatAreNotThere(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=96x64:r=25:d=2"+h264)
	for _, c := range []struct {
		start, end float64
		want       string
	}{
		{2, 9, "start is 2.000 s, but the source lasts 2.000 s"},
		{1, 0.5, "end is 0.500 s, which is not after start"},
		{1.01, 1.03, "there is no frame between"},
	} {
		d := probed(t, src)
		err := chunkTools.Trim(t.Context(), src, d.info, d.packets, c.start, c.end)
		if rejected, ok := errors.AsType[*RejectedError](err); !ok || !strings.HasPrefix(rejected.Reason, c.want) {
			t.Errorf("from %v to %v: %v", c.start, c.end, err)
		}
	}
}

func TestTrim_ShiftsCaptionsAndChapters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.srt": "1\n00:00:01,000 --> 00:00:02,500\nbefore and in\n\n2\n00:00:03,000 --> 00:00:03,500\nin\n\n" +
			"3\n00:00:04,500 --> 00:00:05,000\nafter\n\n",
		"chapters": ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1\nSTART=0\nEND=3\ntitle=One\n" +
			"[CHAPTER]\nTIMEBASE=1/1\nSTART=3\nEND=6\ntitle=Two\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := trimmed(t, makeClip(t, "a.mkv", "-f lavfi -i testsrc2=s=96x64:r=25:d=6 -i "+dir+"/a.srt -i "+dir+"/chapters "+
		"-map 0 -map 1 -map_chapters 2"+h264), 2, 4)
	tracks, warnings, err := fastTools.SourceCaptions(t.Context(), d.src, d.info, dir)
	if err != nil || len(tracks) != 1 {
		t.Fatalf("%v %v %v", tracks, warnings, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, tracks[0].Dir, CaptionsFile))
	want := "WEBVTT\n\n00:00:00.000 --> 00:00:00.500\nbefore and in\n\n00:00:01.000 --> 00:00:01.500\nin\n"
	if err != nil || string(text) != want {
		t.Errorf("captions %q, %v\nwant %q", text, err, want)
	}
	chapters := []captions.Chapter{{Start: 0, End: 1, Title: "One"}, {Start: 1, End: 2, Title: "Two"}}
	if !slices.Equal(d.info.Chapters, chapters) {
		t.Errorf("chapters %v; want %v", d.info.Chapters, chapters)
	}
}

func TestTrim_HoldsTheFrameThatIsShownAtTheStart(t *testing.T) {
	t.Parallel()
	// Slides of three seconds: frames 0, 3, 6 and 9 of one a second.
	src := makeClip(t, "a.mp4", "-f lavfi -i nullsrc=s=96x64:r=1:d=12,geq=lum=20+4*N:cb=128:cr=128 -f lavfi -i sine=d=12 "+
		`-vf select=not(mod(n\,3)) -fps_mode vfr -pix_fmt yuv420p`+h264+"-bf 0 -c:a aac ")
	r := trimmed(t, src, 4, 8).whole(t)
	got := slices.Compact(frameNumbers(t, filepath.Join(r.dir, r.out.Video[0].Playlist)))
	if !isNear(r.out.Duration, 4, 0.1) || !slices.Equal(got, []int{3, 6}) {
		t.Errorf("%.3f s with the slides %v", r.out.Duration, got)
	}
}

func TestTrim_CutsInterlacedPictureAndSoundAlone(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"a.mkv": "-f lavfi -i testsrc2=s=192x128:r=50:d=4 -vf interlace -c:v mpeg2video -q:v 3 -flags +ilme+ildct",
		"a.mp3": "-f lavfi -i sine=d=4 -c:a mp3",
		"a.m4a": "-f lavfi -i sine=d=4 -c:a aac",
	} {
		d := trimmed(t, makeClip(t, name, args), 1, 2.2)
		if r := d.whole(t); !isNear(r.out.Duration, 1.2, 0.05) || d.info.Video != nil && r.out.Expected != 60 {
			t.Errorf("%s: it lasts %.3f s, %d frames", name, r.out.Duration, r.out.Expected)
		}
	}
}

func TestTrim_MakesThePosterOfAFrameOfThePart(t *testing.T) {
	t.Parallel()
	// White, then black for a second, then white.
	src := makeClip(t, "a.mp4", `-f lavfi -i nullsrc=s=96x64:r=25:d=4,`+
		`geq=lum=if(between(N\,50\,74)\,16\,235):cb=128:cr=128 -pix_fmt yuv420p`+h264)
	d := trimmed(t, src, 2, 3)
	for _, at := range []float64{0, 0.97, math.Inf(1)} {
		file := filepath.Join(t.TempDir(), "poster.jpg")
		if err := fastTools.PosterAt(t.Context(), src, d.info, at, file); err != nil {
			t.Fatal(err)
		}
		if got := corners(t, file); got[0] != colour(0, 0, 0) {
			t.Errorf("at %v: %v", at, got)
		}
	}
}
