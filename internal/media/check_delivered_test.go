package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/Eyevinn/mp4ff/mp4"
)

// deliveryTools remember what ffmpeg supports, as in the daemon.
var deliveryTools = Tools{Preset: "ultrafast", Threads: 1, Cache: &CapabilityCache{}}

// deliver copies what a worker may deliver of a transcode.
func deliver(t *testing.T, from string, info *Info, rungs []Rung) string {
	t.Helper()
	dir, total := t.TempDir(), int64(0)
	found, err := filepath.Glob(filepath.Join(from, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		name, err := filepath.Rel(from, file)
		if err != nil {
			t.Fatal(err)
		}
		isMedia := strings.HasSuffix(name, ".m4s") || strings.HasSuffix(name, ".mp4")
		if got := ExpectedFile(info, rungs, filepath.ToSlash(name)); got != isMedia {
			t.Errorf("%s is expected: %v", name, got)
		}
		if !isMedia {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		total += int64(len(text))
		if limit := MaxFileBytes(info, rungs, filepath.ToSlash(name)); int64(len(text)) > limit {
			t.Errorf("%s has %d bytes; the limit is %d", name, len(text), limit)
		}
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755),
			os.WriteFile(filepath.Join(dir, name), text, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if limit := MaxTotalBytes(info, rungs); total > limit {
		t.Errorf("%d bytes in all; the limit is %d", total, limit)
	}
	return dir
}

// wantAccepted requires that a check which trusts nothing describes the output as
// Transcode did.
func (r result) wantAccepted(t *testing.T) {
	t.Helper()
	rungs := Ladder(r.info)
	dir := deliver(t, r.dir, r.info, rungs)
	got, err := deliveryTools.CheckDelivered(t.Context(), r.src, r.info, rungs, dir, r.out)
	if err != nil {
		t.Errorf("an honest output: %v", err)
		return
	}
	for i, list := range [][]Rendition{got.Video, got.Audio} {
		want := [][]Rendition{r.out.Video, r.out.Audio}[i]
		if len(list) != len(want) {
			t.Errorf("%d renditions; want %d", len(list), len(want))
			return
		}
		for k, g := range list {
			if g.Bytes = want[k].Bytes; g != want[k] { // the metadata was removed
				t.Errorf("rendition %+v; want %+v", g, want[k])
			}
			wantSame(t, filepath.Join(dir, g.Playlist), filepath.Join(r.dir, g.Playlist))
		}
	}
	if got.Expected != r.out.Expected || got.Duration != r.out.Duration || got.Constant != r.out.Constant ||
		got.Storyboard != nil || strings.Join(got.Warnings, "\n") != strings.Join(r.out.Warnings, "\n") {
		t.Errorf("output %+v; want %+v", got, r.out)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("temporary files are left: %q", left)
	}
}

func wantSame(t *testing.T, a, b string) {
	t.Helper()
	x, err1 := os.ReadFile(a)
	y, err2 := os.ReadFile(b)
	if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ: %v %v\n%s\n%s", a, b, err1, err2, x, y)
	}
}

// honest is a source with an honest transcode.
type honest struct {
	src, dir string
	info     *Info
	rungs    []Rung
	out      *Output
}

// chirp is sound that is different at every time.
const chirp = "aevalsrc='0.4*sin(2*PI*(200+90*t)*t)':s=48000"

func transcodeHonestly(t *testing.T, src string) honest {
	t.Helper()
	return transcodeLadder(t, src, LadderOptions{})
}

func transcodeLadder(t *testing.T, src string, o LadderOptions) honest {
	t.Helper()
	h := honest{src: src, dir: t.TempDir()}
	var err error
	if h.info, err = deliveryTools.Probe(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	h.rungs = LadderWith(h.info, o)
	if o.Loudness != 0 {
		if err := deliveryTools.MeasureLoudness(t.Context(), src, h.info, h.rungs); err != nil {
			t.Fatal(err)
		}
	}
	if h.out, err = deliveryTools.Transcode(t.Context(), src, h.info, h.rungs, h.dir, nil); err != nil {
		t.Fatal(err)
	}
	return h
}

func makeHonest(t *testing.T) honest {
	t.Helper()
	return transcodeHonestly(t, makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=640x360:r=25:d=8 -f lavfi -i "+chirp+":d=8"+
		h264+"-c:a aac"))
}

func (h honest) check(ctx context.Context, dir string, claimed *Output) (*Output, error) {
	return deliveryTools.CheckDelivered(ctx, h.src, h.info, h.rungs, dir, claimed)
}

// wantRefused requires a refusal whose sentence has a word.
func wantRefused(t *testing.T, err error, word string) {
	t.Helper()
	refused := (*RefusedError)(nil)
	if !errors.As(err, &refused) {
		t.Errorf("error %v; want a refusal about %q", err, word)
		return
	}
	if text := refused.Error(); !strings.Contains(text, word) || strings.ContainsAny(text, "<>/\n") || len(text) > 300 {
		t.Errorf("the refusal says %q; want %q", text, word)
	}
}

// wrongContent is what a faulty worker may make of a source. SRC is the source, SIZE the size of the largest rung.
var wrongContent = []struct{ name, args, word string }{
	{"black frames", "-i SRC -vf drawbox=c=black:t=fill -c:a copy", "of the source"},
	{"another video", "-f lavfi -i mandelbrot=s=SIZE:r=RATE -i SRC -map 0:v -map 1:a? -c:a copy -t LENGTH",
		"of the source"},
	{"shifted video", "-i SRC -vf tpad=start_mode=clone:start_duration=2,trim=end=LENGTH -c:a copy", "of the source"},
	{"mirrored video", "-i SRC -vf hflip -c:a copy", "of the source"},
	{"video without colours", "-i SRC -vf hue=s=0 -c:a copy", "of the source"},
	{"half the frames", "-i SRC -vf fps=RATE/2 -c:a copy", "frames"},
	{"half the duration", "-i SRC -t LENGTH/2 -c:a copy", ""},
	{"silence", "-i SRC -af volume=0", "silent"},
	{"sound shifted by two seconds", "-i SRC -af adelay=2000:all=1,atrim=end=LENGTH", "audio"},
}

func TestCheckDelivered_RefusesWrongContent(t *testing.T) {
	if testing.Short() {
		t.Skip("transcodes a dozen videos")
	}
	t.Parallel()
	h := makeHonest(t)
	for _, f := range wrongContent {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			dir, claimed := h.forge(t, f.args)
			_, err := h.check(t.Context(), dir, claimed)
			wantRefused(t, err, f.word)
		})
	}
}

// forge transcodes a forged source into the honest ladder, and delivers the result.
func (h honest) forge(t *testing.T, args string) (dir string, claimed *Output) {
	t.Helper()
	v := h.info.Video
	top := h.rungs[0]
	args = strings.NewReplacer("LENGTH/2", fmtFloat(h.info.Duration/2), "LENGTH", fmtFloat(h.info.Duration),
		"RATE/2", fmtFloat(v.FPS/2), "RATE", fmtFloat(v.FPS),
		"SIZE", fmt.Sprintf("%dx%d", top.Width, top.Height)).Replace(args)
	forged := filepath.Join(t.TempDir(), "forged.mkv")
	list := fields(args)
	for i := range list {
		if list[i] == "SRC" {
			list[i] = "file:" + h.src
		}
	}
	ffmpeg(t, append(list, "-map_metadata", "-1", "-sn", "-dn", "-c:v", "libx264", "-preset", "ultrafast", "-crf", "10",
		"file:"+forged)...)
	info, err := deliveryTools.Probe(t.Context(), forged)
	if err != nil {
		t.Fatal(err)
	}
	made := t.TempDir()
	if claimed, err = deliveryTools.Transcode(t.Context(), forged, info, h.rungs, made, nil); err != nil {
		t.Fatal(err)
	}
	// The worker claims what an honest one would.
	claimed.Decoded, claimed.Distinct, claimed.Expected = h.out.Decoded, h.out.Distinct, h.out.Expected
	claimed.DecodedEnd, claimed.Duration = h.out.DecodedEnd, h.out.Duration
	delivered := t.TempDir()
	if err := os.CopyFS(delivered, os.DirFS(made)); err != nil {
		t.Fatal(err)
	}
	others, _ := filepath.Glob(filepath.Join(delivered, "*", "index.m3u8"))
	for _, name := range append(others, filepath.Join(delivered, StoryboardDir)) {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	return delivered, claimed
}

func TestCheckDelivered_RefusesForgedFiles(t *testing.T) {
	t.Parallel()
	h := makeHonest(t)
	in := func(dir, name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	edit := func(name string, change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			text, err := os.ReadFile(in(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(in(dir, name), change(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	move := func(t *testing.T, dir string, names ...string) {
		t.Helper()
		for i := 0; i+1 < len(names); i++ {
			if err := os.Rename(in(dir, names[i+1]), in(dir, names[i])); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(old, by string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(old), []byte(by)) }
	}
	tests := []struct {
		name, word string
		spoil      func(*testing.T, string)
	}{
		{"a truncated segment", "fit", edit("360p/seg-00001.m4s", func(b []byte) []byte { return b[:len(b)/2] })},
		{"a segment cut at a box", "", edit("360p/seg-00001.m4s", func(b []byte) []byte {
			return b[:bytes.Index(b, []byte("mdat"))-4]
		})},
		{"a missing rendition", "missing", func(t *testing.T, dir string) { removeAll(t, in(dir, "240p")) }},
		{"missing sound", "missing", func(t *testing.T, dir string) { removeAll(t, in(dir, "audio")) }},
		{"an extra rendition", "does not have", func(t *testing.T, dir string) {
			if err := os.CopyFS(in(dir, "720p"), os.DirFS(in(dir, "360p"))); err != nil {
				t.Fatal(err)
			}
		}},
		{"swapped renditions", "pixels", func(t *testing.T, dir string) { move(t, dir, "x", "360p", "240p", "x") }},
		{"sound in the place of a picture", "", func(t *testing.T, dir string) { move(t, dir, "x", "360p", "audio", "x") }},
		{"a missing last segment", "", func(t *testing.T, dir string) { removeAll(t, in(dir, "360p/seg-00001.m4s")) }},
		{"missing last segments of all", "frames", func(t *testing.T, dir string) {
			for _, name := range []string{"360p", "240p", "audio"} {
				removeAll(t, in(dir, name+"/seg-00001.m4s"))
			}
		}},
		{"swapped segments", "", func(t *testing.T, dir string) {
			move(t, dir, "360p/x", "360p/seg-00000.m4s", "360p/seg-00001.m4s", "360p/x")
		}},
		{"another codec's name", "needs", edit("360p/init.mp4", replace("avc1", "hvc1"))},
		{"another codec of sound", "AAC", edit("audio/init.mp4", func(b []byte) []byte {
			i := bytes.Index(b, []byte{0x40, 0x15}) // the object type AAC, in an audio stream
			b[i] = 0x6b                             // MP3
			return b
		})},
		{"another level", "codec string", edit("360p/init.mp4", func(b []byte) []byte {
			b[bytes.Index(b, []byte("avcC"))+7] = 62
			return b
		})},
		{"oblong pixels", "not square", edit("360p/init.mp4", replace("pasp\x00\x00\x00\x01", "pasp\x00\x00\x00\x0a"))},
		{"the colours of PQ", "colours", edit("360p/init.mp4", replace("nclx\x00\x01\x00\x01", "nclx\x00\x09\x00\x10"))},
		{"a disabled track", "disabled", edit("240p/init.mp4", replace("tkhd\x00\x00\x00\x07", "tkhd\x00\x00\x00\x00"))},
		{"a script in the header", "needs", edit("360p/init.mp4", func(b []byte) []byte {
			return append(b, newBox("uuid", "<script>alert(1)</script>")...)
		})},
		{"random data for pictures", "", func(t *testing.T, dir string) {
			for _, name := range []string{"360p/seg-00000.m4s", "360p/seg-00001.m4s"} {
				edit(name, func(b []byte) []byte {
					for i := bytes.Index(b, []byte("mdat")) + 4; i < len(b); i++ {
						b[i] = byte(i * 7919 >> 3)
					}
					return b
				})(t, dir)
			}
		}},
		{"a clock that begins late", "", edit("360p/seg-00000.m4s", func(b []byte) []byte {
			i := bytes.Index(b, []byte("tfdt"))
			copy(b[i+8:], "\x7f\xff\xff\xff\xff\xff\xff\x00")
			return b
		})},
		{"a link", "plain file", func(t *testing.T, dir string) {
			move(t, dir, "seg", "360p/seg-00001.m4s")
			if err := errors.Join(os.Rename(in(dir, "seg"), in(t.TempDir(), "x")),
				os.Symlink("/dev/zero", in(dir, "360p/seg-00001.m4s"))); err != nil {
				t.Fatal(err)
			}
		}},
		{"a FIFO", "plain file", func(t *testing.T, dir string) {
			removeAll(t, in(dir, "360p/seg-00001.m4s"))
			if err := syscall.Mkfifo(in(dir, "360p/seg-00001.m4s"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"a segment of zeros", "NAL units", edit("360p/seg-00001.m4s", func(b []byte) []byte {
			clear(b[bytes.Index(b, []byte("mdat"))+4:])
			return b
		})},
		{"sound of zeros", "2 channels", edit("audio/seg-00001.m4s", func(b []byte) []byte {
			clear(b[bytes.Index(b, []byte("mdat"))+4:])
			return b
		})},
		{"a lost block", "damaged NAL unit", edit("360p/seg-00001.m4s", func(b []byte) []byte {
			clear(b[len(b)-5000 : len(b)-4488])
			return b
		})},
		{"a wrong offset", "is said to be at byte", edit("360p/seg-00001.m4s", func(b []byte) []byte {
			b[bytes.Index(b, []byte("trun"))+15]++
			return b
		})},
		{"nothing", "missing", func(t *testing.T, dir string) {
			for _, name := range []string{"360p", "240p", "audio"} {
				removeAll(t, in(dir, name))
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := deliver(t, h.dir, h.info, h.rungs)
			tt.spoil(t, dir)
			_, err := h.check(t.Context(), dir, h.out)
			wantRefused(t, err, tt.word)
		})
	}
}

// Nothing of a delivered header is published but the parameters of the decoder.
func TestCheckDelivered_WritesTheHeadersItself(t *testing.T) {
	t.Parallel()
	h := makeHonest(t)
	dir := deliver(t, h.dir, h.info, h.rungs)
	init := filepath.Join(dir, "360p", initName)
	editInit(t, init, func(m *mp4.MoovBox) {
		m.Trak.Mdia.Minf.Dinf.Dref.Children[0].(*mp4.URLBox).Flags = 0 // the media data is elsewhere
		m.Trak.Edts.Elst[0].Entries[0].MediaTime = 24000
		m.Trak.Mdia.Hdlr.Name, visualEntry(m).CompressorName = "<script>", "<script>"
		m.Mvex.Trex.DefaultSampleFlags, m.Trak.Tkhd.Layer = mp4.NonSyncSampleFlags, -1
		m.AddChild(&mp4.UdtaBox{})
	})
	setMatrix(t, init, 0, 1, -1, 0)
	if _, err := h.check(t.Context(), dir, h.out); err != nil {
		t.Fatal(err)
	}
	wantSame(t, init, filepath.Join(h.dir, "360p", initName))
}

// The picture stands still, so that comparing it shows nothing.
func TestCheckDelivered_RefusesAPictureThatIsLate(t *testing.T) {
	t.Parallel()
	h := transcodeHonestly(t, makeClip(t, "a.mp4", "-f lavfi -i smptebars=s=640x360:r=25:d=14"+h264))
	dir := deliver(t, h.dir, h.info, h.rungs)
	const late = videoTimescale / 5
	for _, r := range h.out.Video {
		for n := range r.Segments {
			editSegment(t, filepath.Join(dir, r.Name, segmentName(n)), func(f *mp4.Fragment) {
				if n > 0 {
					f.Moof.Traf.Tfdt.SetBaseMediaDecodeTime(f.Moof.Traf.Tfdt.BaseMediaDecodeTime() + late)
				}
				samples := f.Moof.Traf.Trun.Samples
				f.Moof.Traf.Trun.Flags |= mp4.TrunSampleDurationPresentFlag
				if n == 0 {
					samples[0].Dur += late
				}
				if n == r.Segments-1 {
					samples[len(samples)-1].Dur /= 2
				}
			})
		}
	}
	_, err := h.check(t.Context(), dir, h.out)
	wantRefused(t, err, "frames are shown")
}

func removeAll(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

func TestCheckDelivered_ReplacesPlaylistsAndLeftovers(t *testing.T) {
	t.Parallel()
	h := makeHonest(t)
	dir := deliver(t, h.dir, h.info, h.rungs)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("safe"), 0o600),
		os.WriteFile(filepath.Join(dir, "360p/index.m3u8"), []byte("#EXTM3U\nhttp://127.0.0.1/x\n"), 0o600),
		os.Symlink(victim, filepath.Join(dir, "240p/index.m3u8")), os.Mkdir(filepath.Join(dir, ".count-1"), 0o700),
		os.Symlink(filepath.Dir(victim), filepath.Join(dir, ".compare-1")),
		os.WriteFile(filepath.Join(dir, "audio/.write-1"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a check after an interrupted one
		if _, err := h.check(t.Context(), dir, h.out); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"360p", "240p", "audio"} {
			wantSame(t, filepath.Join(dir, name, playlistName), filepath.Join(h.dir, name, playlistName))
		}
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "safe" {
		t.Errorf("a link was followed: %q, %v", text, err)
	}
}
