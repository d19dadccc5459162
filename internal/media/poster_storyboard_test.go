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
	"strconv"
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

func TestPoster_AvoidsBlackAndFitsSize(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4",
		"-f lavfi -i testsrc2=s=1600x200:r=10:d=12 -vf drawbox=c=black:t=fill:enable='lt(t\\,5)' -g 10"+h264)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "poster.jpg")
	if err := fastTools.Poster(t.Context(), src, info, file); err != nil {
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
		t.Errorf("error %v; files next to the poster: %v", err, entries)
	}
}

func TestRewritePoster_KeepsThePictureAndNoOtherByte(t *testing.T) {
	t.Parallel()
	file := makeClip(t, "p.jpg", "-f lavfi -i testsrc2=s=1600x200:d=0.1 -frames:v 1 -metadata comment=hidden")
	picture, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := corners(t, file)
	withPayload := append(bytes.Clone(picture), "<script>hidden</script>"...)
	if err := os.WriteFile(file, withPayload, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fastTools.RewritePoster(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if size := readJPEG(t, file).Bounds().Size(); size != image.Pt(1280, 160) {
		t.Errorf("size %v; want 1280x160", size)
	}
	if got := corners(t, file); got != want {
		t.Errorf("the corners are %v; want %v", got, want)
	}
	if got, err := os.ReadFile(file); err != nil || bytes.Contains(got, []byte("hidden")) {
		t.Errorf("%v; the payload is still there", err)
	}
	for name, content := range map[string][]byte{"half": picture[:len(picture)/2], "none": nil, "text": []byte("hidden")} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := fastTools.RewritePoster(t.Context(), file); !errors.Is(err, ErrNoPicture) {
			t.Errorf("%s: %v; want ErrNoPicture", name, err)
		}
	}
}

func TestPoster_UsesCoverOfAudio(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp3",
		tone+"-f lavfi -i color=red:s=64x48:d=0.1:r=10 -map 0 -map 1 -c:v mjpeg -pix_fmt yuvj420p "+
			"-disposition:v attached_pic -c:a libmp3lame")
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "poster.jpg")
	if err := fastTools.Poster(t.Context(), src, info, file); err != nil {
		t.Fatal(err)
	}
	if size := readJPEG(t, file).Bounds().Size(); size != image.Pt(64, 48) {
		t.Errorf("size %v; want 64x48", size)
	}
	if _, err := fastTools.storyboard(t.Context(), t.TempDir(), info, &Output{}); !errors.Is(err, ErrNoPicture) {
		t.Errorf("storyboard: %v; want ErrNoPicture", err)
	}
}

func TestPoster_AudioWithoutCoverHasNone(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.wav", tone)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	err = fastTools.Poster(t.Context(), src, info, filepath.Join(t.TempDir(), "p.jpg"))
	if !errors.Is(err, ErrNoPicture) {
		t.Errorf("error %v; want ErrNoPicture", err)
	}
}

func TestPoster_WorksForUnusualSources(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"interlaced.mpg": "-f lavfi -i testsrc2=s=320x240:r=50:d=0.2 -vf tinterlace=interleave_top,fieldorder=tff " +
			"-flags +ildct+ilme -c:v mpeg2video",
		"one frame.mkv": "-f lavfi -i testsrc2=s=320x240:r=1:d=1 -c:v ffv1",
		"one pixel.mkv": "-f lavfi -i color=red:s=2x2:r=10:d=1,format=yuv444p,scale=1:1 -c:v ffv1",
		"hdr.mkv": "-f lavfi -i testsrc2=s=320x240:r=10:d=1 " +
			"-vf format=yuv420p10le,setparams=color_trc=smpte2084:color_primaries=bt2020:colorspace=bt2020nc " +
			"-color_trc smpte2084 -color_primaries bt2020 -colorspace bt2020nc" + h264,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := makeClip(t, name, args)
			info, err := fastTools.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "poster.jpg")
			if err := fastTools.Poster(t.Context(), src, info, file); err != nil {
				t.Fatal(err)
			}
			if size := readJPEG(t, file).Bounds().Size(); size.X%2+size.Y%2 != 0 {
				t.Errorf("size %v", size)
			}
		})
	}
}

// The picture is red in the first half and blue in the second. Only keyframes of the
// long one are decoded.
func TestStoryboard_ShowsCorrectTimes(t *testing.T) {
	t.Parallel()
	const colour = "-f lavfi -i color=%s:s=%s:r=%d:d=%d"
	halves := func(rate, length int) func(t *testing.T) string {
		return func(t *testing.T) string {
			return makeClip(t, "a.mp4", fmt.Sprintf(colour, "red", "320x180", rate, length)+
				fmt.Sprintf(",drawbox=c=blue:t=fill:enable='gte(t\\,%d)'", length/2)+h264)
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
			return concatenated(t, fmt.Sprintf(colour, "red", "320x180", 10, 4)+h264,
				fmt.Sprintf(colour, "blue", "640x360", 10, 4)+" -output_ts_offset 4"+h264)
		}, 8, "00:00:03.000 --> 00:00:04.000\nstoryboard-001.jpg#xywh=480,0,160,90\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := c.source(t)
			info, err := fastTools.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			out, err := fastTools.Transcode(t.Context(), src, info, Ladder(info), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			b := out.Storyboard
			if b == nil || b.Count != c.count || b.Width != 160 || b.Height != 90 || len(b.Sheets) != 1 {
				t.Fatalf("%+v", b)
			}
			img := readJPEG(t, filepath.Join(dir, StoryboardDir, b.Sheets[0]))
			for i := range b.Count {
				r, _, blue, _ := img.At(i%b.Columns*b.Width+80, i/b.Columns*b.Height+45).RGBA()
				if red := i < b.Count/2; red != (r > blue) {
					t.Errorf("picture %d is red: %v; want %v", i, !red, red)
				}
			}
			text, err := os.ReadFile(filepath.Join(dir, StoryboardDir, b.VTT))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), c.cue) {
				t.Errorf("no %q in\n%s", c.cue, text)
			}
		})
	}
}

func TestNewStoryboard_ChoosesIntervalAndGrid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		duration      float64
		interval      float64
		count         int
		columns, rows int
	}{
		{0.3, 0.3, 1, 1, 1}, {5, 1, 5, 5, 1}, {30.5, 1, 31, 10, 4}, {100, 1, 100, 10, 10}, {600, 6, 100, 10, 10},
		{7200, 10, 720, 10, 10},
	}
	for _, tt := range tests {
		b := newStoryboard(tt.duration, 1920, 1080)
		if b.Interval != tt.interval || b.Count != tt.count || b.Columns != tt.columns || b.Rows != tt.rows {
			t.Errorf("%v s: %+v; want %+v", tt.duration, b, tt)
		}
	}
}

// ffmpeg reports no progress until each output has started, and ffmpeg 7 buffers all
// frames until each output has one.
func TestTranscode_ReportsProgressAndKeepsNoFramesInMemory(t *testing.T) {
	t.Parallel()
	tools := fastTools
	tools.Sandbox = SandboxOff
	tools.FFmpeg = script(t, `case $* in *-stats_period*) exec ffmpeg -readrate 5 "$@" ;; esac; exec ffmpeg "$@"`)
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=1280x720:r=50:d=15"+h264) // 1 GB when decoded
	info, err := tools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	tools.Memory = 600 << 20
	seen := []float64{} // used by Transcode until it returns
	ladder := Ladder(info)
	_, err = tools.Transcode(t.Context(), src, info, ladder[len(ladder)-1:], t.TempDir(),
		func(p Progress) { seen = append(seen, p.Percent) })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(seen, func(percent float64) bool { return percent > 10 && percent < 90 }) {
		t.Errorf("percentages: %v", seen)
	}
}

// bitText is a bit string of an H.264 header, written as 0 and 1.
type bitText string

func (b bitText) u(n int, v uint64) bitText { return b + bitText(fmt.Sprintf("%0*b", n, v)) }

// ue appends an Exp-Golomb code.
func (b bitText) ue(v uint64) bitText {
	n := len(strconv.FormatUint(v+1, 2))
	return b.u(2*n-1, v+1)
}

// unit returns a NAL unit of the bits and the bytes after them.
func (b bitText) unit(head byte, rest string) string {
	if rest == "" {
		b += "1"
	}
	for len(b)%8 != 0 {
		b += "0"
	}
	out := "\x00\x00\x00\x01" + string([]byte{head})
	for ; b != ""; b = b[8:] {
		v, _ := strconv.ParseUint(string(b[:8]), 2, 8)
		if strings.HasSuffix(out, "\x00\x00") && v <= 3 {
			out += "\x03"
		}
		out += string([]byte{byte(v)})
	}
	return out + rest
}

// fieldByField is a transport stream of a grey picture of 128x96 pixels, 25 frames a
// second, each coded as two fields, which libx264 cannot do.
func fieldByField(t *testing.T, frames int) string {
	t.Helper()
	const wide, high = 8, 3 // macroblocks of a field
	sps := bitText("").u(24, 77<<16|30).ue(0).ue(0).ue(2).ue(1).u(1, 0).ue(wide-1).ue(high-1).u(4, 0b0010).
		u(6, 0b100001).u(32, 1).u(32, 50).u(5, 0b10000).unit(0x67, "")
	pps := bitText("").ue(0).ue(0).u(2, 0).ue(0).ue(0).ue(0).u(3, 0).ue(0).ue(0).ue(0).u(3, 0b100).unit(0x68, "")
	const samples = 384 // of an uncompressed macroblock
	grey := strings.Repeat("\x60", samples) +
		strings.Repeat("\x0d\x00"+strings.Repeat("\x60", samples), wide*high-1) + "\x80"
	var all strings.Builder
	for i := range 2 * frames {
		number := uint64(i / 2 % 25 % 16)
		all.WriteString("\x00\x00\x00\x01\x09\xf0")
		if i%50 == 0 {
			head := bitText("").ue(0).ue(7).ue(0).u(4, 0).u(2, 0b10).ue(0).u(2, 0).ue(0).ue(1).ue(25)
			all.WriteString(sps + pps + head.unit(0x65, grey))
			continue
		}
		// The field is unchanged.
		all.WriteString(bitText("").ue(0).ue(5).ue(0).u(4, number).u(2, 0b10|uint64(i%2)).
			u(1, 0).u(1, 0).u(1, 0).ue(0).ue(1).ue(wide*high).unit(0x61, ""))
	}
	raw := filepath.Join(t.TempDir(), "raw.264")
	if err := os.WriteFile(raw, []byte(all.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "fields.ts")
	ffmpeg(t, "-f", "h264", "-r", "50", "-i", raw, "-c", "copy", "-bsf:v", "setts=ts=N*1800:time_base=1/90000", file)
	return file
}

func TestProbe_CountsFieldPacketsAsHalfFrames(t *testing.T) {
	t.Parallel()
	src := fieldByField(t, 200)
	r := publish(t, src)
	v := r.info.Video
	if v.Frames != 200 || !isNear(v.FPS, 25, 0.01) || !v.Interlaced || r.out.Decoded != 200 || r.out.Expected != 400 ||
		r.out.Damage != nil {
		t.Errorf("video %+v, output %+v; want 200 frames of two fields", v, r.out)
	}
	o := *r.out
	err := o.assessDamage(r.info, frameList{frames: 199, distinct: 199, end: 8}, stderrReport{errors: 1})
	if err != nil || o.Damage.Frames != 0 {
		t.Errorf("with one complaint: %v, %+v; want it to cost nothing", err, o.Damage)
	}
}

func TestFrameSample_DoesNotHalveSlowFrames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		v    Video
		seen frameSample
		want bool
	}{
		"fields":           {Video{FPS: 50, Interlaced: true}, frameSample{frames: 120, first: 20, last: 24.76}, true},
		"frames":           {Video{FPS: 25, Interlaced: true}, frameSample{frames: 120, first: 20, last: 24.76}, false},
		"a few frames":     {Video{FPS: 50, Interlaced: true}, frameSample{frames: 5, last: 0.16}, false},
		"a slow recording": {Video{FPS: 20}, frameSample{frames: 120, last: 11.9}, false},
		"no rate":          {Video{Interlaced: true}, frameSample{frames: 120, last: 5}, false},
	} {
		if got := c.seen.packetsAreFields(&c.v); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
