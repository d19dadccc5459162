package media

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProbe_RejectsWhatIsNotMedia(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.mp4")
	ffmpeg(t, append(fields("-f lavfi -i testsrc2=s=64x64:r=10:d=1"+h264), secret)...)
	tests := []struct{ name, content, reason string }{
		{"empty", "", "the file is empty"},
		{"text", "This is no video.\n" + strings.Repeat("It is prose. ", 400), ""},
		{"page", "<!doctype html><html><body>hello</body></html>", ""},
		{"HLS playlist", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n" + secret + "\n#EXT-X-ENDLIST\n", "playlist"},
		{"HLS playlist, relative", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsecret.mp4\n#EXT-X-ENDLIST\n", "playlist"},
		{"concat script", "ffconcat version 1.0\nfile secret.mp4\n", "playlist"},
		{
			"session description",
			"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
			"",
		},
		{
			"DASH manifest", `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period/></MPD>`,
			"",
		},
		{
			"picture", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde",
			"picture",
		},
		{"subtitles", "WEBVTT\n\n00:00.000 --> 00:01.000\nhello\n", ""},
		{"text about OpenCV", "import opencv, enca\n" + strings.Repeat("stsd of encv ", 400), "not a video or audio file"},
		{"noise", strings.Repeat("\x17\xa3\x5c\xf0\x02", 2000), "not a video or audio file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(dir, tt.name+".mp4")
			if err := os.WriteFile(file, []byte(tt.content), 0o644); err != nil {
				t.Fatal(err)
			}
			info, err := fastTools.Probe(t.Context(), file)
			wantRejected(t, err, tt.reason)
			if info != nil {
				t.Errorf("info %+v in addition to the error", info)
			}
		})
	}
}

func TestRejectUnreadable_NamesTheCause(t *testing.T) {
	t.Parallel()
	const entries = "\x00\x00\x00\x50stsd\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x40"
	for content, c := range map[string]struct{ message, want string }{
		"opencv": {"", "not a video or audio file"}, "stsd: encv": {"", "not a video or audio file"},
		"stsd stsd" + entries + "encv": {"", "is encrypted"}, entries + "enca": {"", "is encrypted"},
		entries + "avc1": {"", "not a video or audio file"},
		"FWS":            {"[swf] Format not on whitelist 'mov'", `the format "swf" is not supported`},
		"GIF":            {"[image2,image2pipe] Format not on whitelist 'mov'", "a picture"},
	} {
		file := filepath.Join(t.TempDir(), "a.mp4")
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := rejectUnreadable(file, c.message); !strings.Contains(got.Reason, c.want) {
			t.Errorf("%q: %q", content, got.Reason)
		}
	}
}

func TestProbe_RejectsPicturesOfJPEG(t *testing.T) {
	t.Parallel()
	for _, frames := range []string{"1", "2"} { // some cameras store two
		src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64 -frames:v "+frames+" -f mjpeg")
		_, err := fastTools.Probe(t.Context(), src)
		wantRejected(t, err, "picture")
	}
}

func TestRejectUnreadable_NamesMissingIndexOnlyForMP4(t *testing.T) {
	t.Parallel()
	const missing = "its index (the moov box) is missing"
	for name, c := range map[string]struct {
		head string
		want string
	}{
		"type":         {"\x00\x00\x00\x18ftypisom", missing},
		"segment":      {"\x00\x00\x00\x18stypmsdh", missing},
		"media":        {"\x00\x0f\xff\xffmdat", missing},
		"QuickTime":    {"\x00\x00\x00\x08wide\x00\x00\x00\x00mdat", missing},
		"damaged moov": {"\x00\x00\xff\xffmoov", missing},
		"free":         {"\x00\x00\x00\x08free", missing},
		"skip":         {"\x00\x00\x00\x08skip", missing},
		"noise":        {"\x17\xa3\x5c\xf0\x02\x17\xa3\x5c\xf0\x02", "not a video or audio file"},
		"text":         {"ftyp is a word, moov another", "not a video or audio file"},
		"too short":    {"ftyp", "not a video or audio file"},
	} {
		file := filepath.Join(t.TempDir(), "a.mp4")
		if err := os.WriteFile(file, []byte(c.head), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := rejectUnreadable(file, "[mov,mp4] moov atom not found"); !strings.Contains(got.Reason, c.want) {
			t.Errorf("%s: %q", name, got.Reason)
		}
	}
}

// wantRejected requires a *RejectedError whose reason contains a text and whose texts
// contain no path of this host.
func wantRejected(t *testing.T, err error, reason string) {
	t.Helper()
	rejected := (*RejectedError)(nil)
	if !errors.As(err, &rejected) {
		t.Fatalf("error %v; want a rejection", err)
	}
	if rejected.Reason == "" || !strings.Contains(rejected.Reason, reason) {
		t.Errorf("reason %q; want %q in it", rejected.Reason, reason)
	}
	if strings.Contains(rejected.Reason+rejected.Detail, os.TempDir()) {
		t.Errorf("reason %q, detail %q show a path", rejected.Reason, rejected.Detail)
	}
}

func TestProbe_DoesNotRejectMissingSource(t *testing.T) {
	t.Parallel()
	_, err := fastTools.Probe(t.Context(), filepath.Join(t.TempDir(), "none.mp4"))
	if rejected := (*RejectedError)(nil); !errors.Is(err, fs.ErrNotExist) || errors.As(err, &rejected) {
		t.Errorf("error %v; want fs.ErrNotExist", err)
	}
	_, err = fastTools.Probe(t.Context(), t.TempDir())
	wantRejected(t, err, "regular file")
}

func TestProbe_HandlesDamagedSources(t *testing.T) {
	t.Parallel()
	whole := makeClip(t, "a.mp4",
		"-f lavfi -i testsrc2=s=320x240:r=25:d=8 -g 25 -movflags +faststart -preset ultrafast -c:v libx264 -pix_fmt yuv420p")
	content, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	write := func(t *testing.T, b []byte) string {
		file := filepath.Join(t.TempDir(), "damaged.mp4")
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Run("cut after two thirds is published with a warning", func(t *testing.T) {
		t.Parallel()
		r := publish(t, write(t, content[:len(content)*2/3]))
		if r.out.Duration < 3 || r.out.Duration > 7 || len(r.info.Warnings)+len(r.out.Warnings) == 0 {
			t.Errorf("duration %.1f s, warnings %q %q", r.out.Duration, r.info.Warnings, r.out.Warnings)
		}
	})
	t.Run("noise in the middle is published with a warning", func(t *testing.T) {
		t.Parallel()
		b := bytes.Clone(content)
		for i := len(b) / 2; i < len(b)/2+len(b)/10; i++ {
			b[i] = byte(i * 7)
		}
		r := publish(t, write(t, b))
		if r.out.DecodeErrors == 0 || len(r.out.Warnings) == 0 {
			t.Errorf("%d errors, warnings %q", r.out.DecodeErrors, r.out.Warnings)
		}
	})
	t.Run("without its index it is rejected", func(t *testing.T) {
		t.Parallel()
		at := bytes.Index(content, []byte("moov"))
		_, err := fastTools.Probe(t.Context(), write(t, content[:at]))
		wantRejected(t, err, "index")
	})
	t.Run("with nothing but noise for frames it is rejected", func(t *testing.T) {
		t.Parallel()
		b := bytes.Clone(content)
		for i := bytes.Index(b, []byte("mdat")) + 4; i < len(b); i++ {
			b[i] = 0xff
		}
		_, err := fastTools.Probe(t.Context(), write(t, b))
		wantRejected(t, err, "h264")
	})
	t.Run("with an unknown codec it is rejected by name", func(t *testing.T) {
		t.Parallel()
		_, err := fastTools.Probe(t.Context(), write(t, bytes.ReplaceAll(content, []byte("avc1"), []byte("zzz9"))))
		wantRejected(t, err, `"zzz9"`)
	})
	t.Run("encrypted it is rejected as that", func(t *testing.T) {
		t.Parallel()
		_, err := fastTools.Probe(t.Context(), write(t, bytes.ReplaceAll(content, []byte("avc1"), []byte("encv"))))
		wantRejected(t, err, "encrypted")
	})
}

func TestProbe_RejectsExtremePictureSizes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		w, h   int
		reason string
	}{
		{16385, 100, "too large"}, {100, 16385, "too large"}, {12000, 12000, "too large"}, {2, 16384, "too narrow"},
		{16384, 2, "too narrow"},
	}
	for _, tt := range tests {
		_, err := describeVideo(&rawStream{Codec: "h264", Width: tt.w, Height: tt.h}, &trackTiming{packets: 1}, &Info{})
		wantRejected(t, err, tt.reason)
		if !strings.Contains(err.Error(), fmt.Sprintf("%dx%d", tt.w, tt.h)) {
			t.Errorf("%v does not name the size", err)
		}
	}
	for _, size := range [][2]int{{16384, 6000}, {16, 4000}, {1, 1}, {16384, 8}} {
		_, err := describeVideo(&rawStream{Codec: "h264", Width: size[0], Height: size[1]}, &trackTiming{packets: 1}, &Info{})
		if err != nil {
			t.Errorf("%v: %v", size, err)
		}
	}
}

func TestTranscode_AcceptsAnySourceAndDirectoryName(t *testing.T) {
	t.Parallel()
	plain := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 "+h264)
	for _, name := range []string{
		"-i.mp4", "with space.mp4", `quo"te'.mp4`, "50%off.mp4", "%05d.mp4", "new\nline.mp4", "what?.mp4",
		"a:b.mp4", "http:x.mp4",
		"pipe:0", "\xff\xfe.mp4", "concat:a|b.mp4", "-", "*.mp4", "[x],y;z.mp4", "tab\t.mp4",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), name)
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			src := filepath.Join(folder, name)
			if err := os.Link(plain, src); err != nil {
				t.Fatal(err)
			}
			info, err := fastTools.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(folder, "out"+name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			out, err := fastTools.Transcode(t.Context(), src, info, Ladder(info), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := fastTools.Check(t.Context(), info, dir, out); err != nil {
				t.Error(err)
			}
			if err := fastTools.Poster(t.Context(), src, info, filepath.Join(folder, name+".jpg")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProbe_NamesAnimatedPictures(t *testing.T) {
	t.Parallel()
	// ffmpeg reads none of these as a video, and not every build can write all of them.
	for name, c := range map[string]struct{ content, want string }{
		"animated WebP": {
			"RIFF\x56\x18\x00\x00WEBPVP8X\x0a\x00\x00\x00\x12\x00\x00\x00\x3f\x00\x00\x3f\x00\x00ANIM", "animated WebP",
		},
		"still WebP": {
			"RIFF\x56\x18\x00\x00WEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00\x3f\x00\x00\x3f\x00\x00VP8 ", "a picture",
		},
	} {
		file := filepath.Join(t.TempDir(), "a.webp")
		if err := os.WriteFile(file, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := fastTools.Probe(t.Context(), file)
		t.Log(name, err)
		wantRejected(t, err, c.want)
	}
}

func TestProbe_WarnsOfTruncation(t *testing.T) {
	t.Parallel()
	const args = "-f lavfi -i testsrc2=s=320x240:r=25:d=8 -g 25"
	for name, c := range map[string]struct{ args, ending string }{
		"MP4":      {args + h264 + "-movflags +faststart", "mp4"},
		"Matroska": {args + h264, "mkv"},
		"AVI":      {args + " -c:v mpeg4", "avi"},
		"WAV":      {"-f lavfi -i sine=d=8", "wav"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := makeClip(t, "a."+c.ending, c.args)
			if isTruncated(whole) {
				t.Error("the whole file is called truncated")
			}
			text, err := os.ReadFile(whole)
			if err != nil {
				t.Fatal(err)
			}
			cut := filepath.Join(t.TempDir(), "a."+c.ending)
			if err := os.WriteFile(cut, text[:len(text)*3/5], 0o644); err != nil {
				t.Fatal(err)
			}
			info, err := fastTools.Probe(t.Context(), cut)
			if err != nil {
				t.Fatal(err)
			}
			if w := strings.Join(info.Warnings, "; "); !strings.Contains(w, "truncated") {
				t.Errorf("warnings %q; want one that says truncated", w)
			}
		})
	}
	whole := makeClip(t, "a.mp4", args+h264)
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(whole, text[:len(text)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = fastTools.Probe(t.Context(), whole)
	wantRejected(t, err, "truncated: its index")
}
