package media

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// bigCover is an audio file of some hundred kilobytes with a cover of 144 million
// pixels.
func bigCover(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	picture := filepath.Join(dir, "cover.png")
	ffmpeg(t, append(fields("-f lavfi -i color=red:s=12000x12000 -frames:v 1 -pix_fmt gray"), picture)...)
	file := filepath.Join(dir, "a.m4a")
	ffmpeg(t, append(fields(tone+"-i"), picture, "-map", "0", "-map", "1", "-c:a", "aac", "-c:v", "copy",
		"-disposition:v", "attached_pic", file)...)
	return file
}

func TestProbe_IgnoresTooLargeCover(t *testing.T) {
	t.Parallel()
	src := bigCover(t)
	tools := fastTools
	tools.Memory = 120 << 20 // a frame of the cover alone takes more
	info, err := tools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	if info.Cover >= 0 || !strings.Contains(strings.Join(info.Warnings, "\n"), "too large") {
		t.Errorf("cover %d, warnings %q; want none, and a warning", info.Cover, info.Warnings)
	}
	info.Cover = 1 // as an older version would report it
	err = tools.Poster(t.Context(), src, info, filepath.Join(t.TempDir(), "poster.jpg"))
	if !errors.Is(err, ErrNoPicture) {
		t.Errorf("poster: %v; want ErrNoPicture", err)
	}
}

func TestProbe_RejectsTooLargePictureBeforeDecoding(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture := filepath.Join(dir, "picture.png")
	ffmpeg(t, append(fields("-f lavfi -i color=red:s=12000x12000 -frames:v 1 -pix_fmt gray"), picture)...)
	tools := fastTools
	tools.Memory = 120 << 20
	for _, name := range []string{"a.mov", "a.mkv", "a.nut"} {
		file := filepath.Join(dir, name)
		ffmpeg(t, "-i", picture, "-c", "copy", file)
		_, err := tools.Probe(t.Context(), file)
		wantRejected(t, err, "the picture is too large: 12000x12000 pixels")
	}
}

func TestProbe_CutsLongTitle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	long := strings.Repeat("ä title \\\" ", 600_000)
	meta := filepath.Join(dir, "meta")
	text := ";FFMETADATA1\n[STREAM]\ntitle=" + strings.ReplaceAll(long, "\\", "\\\\") + "\n"
	if err := os.WriteFile(meta, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(dir, "a.mkv")
	ffmpeg(t, append(fields(tone+"-f ffmetadata -i"), meta, "-map_metadata:s:0", "1:s:0", "-c:a", "aac", src)...)
	if st, err := os.Stat(src); err != nil || st.Size() < 6<<20 {
		t.Fatalf("the source has no long title: %v %v", st, err)
	}
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	got := info.Audio[0].Title
	if len(got) > maxTitleBytes+len("…") || !strings.HasPrefix(got, "ä title \\\" ä title") || !utf8.ValidString(got) {
		t.Errorf("title of %d bytes %q", len(got), got)
	}
	if all, err := json.Marshal(info); err != nil || len(all) > 4<<10 {
		t.Errorf("the answer has %d bytes (%v)", len(all), err)
	}
}

func TestStringLimiter_KeepsValidJSON(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"a", "ä", "😀", `"`, `\`, "\n", "\u2028", `\u0041`, "\x01", "a\\\"ü\t"} {
		long := strings.Repeat(unit, 5000)
		for _, escaped := range []bool{false, true} {
			in, err := json.Marshal(map[string]any{"long": long, long: 1, "short": "s", "n": []any{"x", long, 2, nil}})
			if err != nil {
				t.Fatal(err)
			}
			if escaped {
				in = []byte(asciiJSON(string(in)))
			}
			for _, piece := range []int{1, 3, 4096, len(in)} {
				var out bytes.Buffer
				cutter := &stringLimiter{next: &out}
				for rest := in; len(rest) > 0; {
					n := min(piece, len(rest))
					if _, err := cutter.Write(rest[:n]); err != nil {
						t.Fatal(err)
					}
					rest = rest[n:]
				}
				var got map[string]any
				if err := json.Unmarshal(out.Bytes(), &got); err != nil {
					t.Fatalf("%q in pieces of %d: %v", unit, piece, err)
				}
				cut, _ := got["long"].(string)
				if got["short"] != "s" || out.Len() > 4*maxStringBytes || cut == "" ||
					!strings.HasPrefix(long+long, strings.TrimSuffix(cut, "\uFFFD")) {
					t.Fatalf("%q in pieces of %d became %q", unit, piece, out.String())
				}
			}
		}
	}
}

// asciiJSON writes JSON in ASCII, with escape sequences.
func asciiJSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+(r-0x10000)>>10, 0xDC00+(r-0x10000)&0x3FF)
		}
	}
	return b.String()
}

func TestDescribe_LimitsLists(t *testing.T) {
	t.Parallel()
	raw := &rawProbe{}
	tracks := map[int]*trackTiming{}
	for i := range 2000 {
		kind := [...]string{"audio", "subtitle", "video", "subtitle"}[i%4]
		s := rawStream{
			Index: i, Type: kind, Codec: map[string]string{"audio": "aac", "subtitle": "subrip", "video": "png"}[kind],
			Channels: 2, Rate: "48000",
		}
		s.Disposition.Cover = 1
		raw.Streams = append(raw.Streams, s)
		tracks[i] = &trackTiming{packets: 10, end: 1}
	}
	for i := range raw.Streams {
		if i%8 == 1 {
			raw.Streams[i].Codec = "dvd_subtitle"
		}
	}
	info, err := describe(raw, tracks, 1, decoderSet{"aac": {"aac"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Audio) > maxAudio || len(info.Subtitles) > maxSubtitles || len(info.Warnings) > maxWarnings+1 {
		t.Errorf("%d audio streams, %d subtitles, %d warnings", len(info.Audio), len(info.Subtitles), len(info.Warnings))
	}
}

func TestProbe_RejectsTooLongSource(t *testing.T) {
	t.Parallel()
	// One small frame an hour.
	src := makeClip(t, "a.mkv",
		"-f lavfi -i color=red:s=32x32:r=1/3600:d=169200 -c:v libx264 -preset ultrafast -pix_fmt yuv420p")
	if st, err := os.Stat(src); err != nil || st.Size() > 100<<10 {
		t.Fatalf("the source is not small: %v %v", st, err)
	}
	_, err := fastTools.Probe(t.Context(), src)
	wantRejected(t, err, "the source lasts 47 hours; the limit is 12 hours")
	tools := fastTools
	tools.MaxDuration = 48 * time.Hour
	if _, err := tools.Probe(t.Context(), src); err != nil {
		t.Errorf("with 48 hours allowed: %v", err)
	}
}

func TestProbe_IgnoresForgedHeaderDuration(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=2 "+h264)
	content, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, box := range []string{"mvhd", "mdhd"} {
		at := bytes.Index(content, []byte(box))
		if at < 0 {
			t.Fatalf("no %s", box)
		}
		copy(content[at+4+16:], []byte{0x0f, 0xff, 0xff, 0xff})
	}
	if err := os.WriteFile(src, content, 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := fastTools.Probe(t.Context(), src)
	// Newer versions of ffmpeg do not report the claim of the header.
	if err != nil || info.Duration > 3 || info.HeaderDuration < 3600 && info.HeaderDuration != info.Duration {
		t.Errorf("%v, %+v; want 2 s although the header claims hours", err, info)
	}
}
