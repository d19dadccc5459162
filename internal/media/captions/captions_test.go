package captions_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"

	"github.com/cuelight/cuelight/internal/media/captions"
)

const s = time.Second

func TestParse_JoinsARepeatedText(t *testing.T) {
	t.Parallel()
	got, err := captions.Parse("a.srt", []byte("1\n00:00:01,000 --> 00:00:02,000\none\n\n2\n00:00:02,000 --> 00:00:03,000\none\n\n"+
		"3\n00:00:04,000 --> 00:00:05,000\none\n"), "")
	want := []captions.Cue{{Start: s, End: 3 * s, Text: "one"}, {Start: 4 * s, End: 5 * s, Text: "one"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestParse_ReadsEveryFormat(t *testing.T) {
	t.Parallel()
	want := []captions.Cue{
		{Start: s, End: 2500 * time.Millisecond, Text: "<i>One</i> &amp; two\nthree"},
		{Start: 3 * s, End: 4 * s, Text: "four", IsTop: true},
	}
	for name, text := range map[string]string{
		"a.srt": "1\n00:00:01,000 --> 00:00:02,500\n<i>One</i> & two\nthree\n\n2\n00:00:03,000 --> 00:00:04,000\n{\\an8}four\n",
		"a.SRT": "\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>One</i> & two\r\nthree\r\n\r\n2\r\n" +
			"00:00:03,000 --> 00:00:04,000\r\n{\\an8}four",
		"a.vtt": "WEBVTT - a title\n\nNOTE nothing\n\nid\n00:01.000 --> 00:02.500\n<i>One</i> &amp; two\nthree\n\n" +
			"00:03.000 --> 00:04.000 line:0\nfour\n",
		"a.ass": `[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,Arial,20

[Events]
Format: Layer, Start, End, Style, Text
Dialogue: 0,0:00:01.00,0:00:02.50,Default,{\i1}One{\i0} & two\Nthree
Dialogue: 0,0:00:03.00,0:00:04.00,Default,{\an8}four
Dialogue: 0,0:00:03.00,0:00:04.00,Default,{\p1}m 0 0 l 10 10{\p0}
`,
		"a.ttml": `<?xml version="1.0" encoding="UTF-8"?>
<tt xmlns="http://www.w3.org/ns/ttml" xmlns:tts="http://www.w3.org/ns/ttml#styling">
<head><layout><region xml:id="top" tts:displayAlign="before"/></layout></head><body><div>
<p begin="00:00:01.000" end="00:00:02.500"><span tts:fontStyle="italic">One</span> &amp; two<br/>three</p>
<p begin="3s" end="4s" region="top">four</p></div></body></tt>`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := captions.Parse(name, []byte(text), "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParse_RecognisesEncodings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, language string
		encoding       encoding.Encoding
	}{
		"UTF-16":                {"Äpfel für Łukasz", "de", unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)},
		"UTF-16 without a mark": {"Äpfel", "", unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)},
		"Windows-1252":          {"Äpfel – “quoted”", "", charmap.Windows1252},
		"Windows-1250":          {"Žluťoučký kůň", "cs-CZ", charmap.Windows1250},
		"Windows-1251":          {"Привет", "ru", charmap.Windows1251},
		"Shift JIS":             {"こんにちは", "ja", japanese.ShiftJIS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := c.encoding.NewEncoder().String("1\n00:00:01,000 --> 00:00:02,000\n" + c.text + "\n")
			if err != nil {
				t.Fatal(err)
			}
			got, err := captions.Parse("a.srt", []byte(data), c.language)
			if err != nil || len(got) != 1 || got[0].Text != c.text {
				t.Errorf("%v, %v; want %q", got, err, c.text)
			}
		})
	}
}

func TestParse_NamesTheWrongLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		line       int
		reason     string
	}{
		"a time that is none": {
			"a.srt", "1\n00:00:01,000 --> 00:00:02,000\none\n\n2\n00:00:xx,000 --> 00:00:04,000\ntwo\n", 6, `"00:00:xx,000" is not a time`,
		},
		"an arrow without an end":   {"a.srt", "1\n00:00:01,000 -->\none\n", 0, "no valid time"},
		"no text at all":            {"a.srt", "hello\n", 0, "no text with a time"},
		"an empty file":             {"a.srt", "", 0, "no text with a time"},
		"WebVTT without its header": {"a.vtt", "00:01.000 --> 00:02.000\none\n", 1, "begins with WEBVTT"},
		"WebVTT with a wrong time":  {"a.vtt", "WEBVTT\n\n00:01.000 --> 00:0a.000\none\n", 3, `"00:0a.000" is not a time`},
		"TTML without times": {
			"a.ttml", `<tt xmlns="http://www.w3.org/ns/ttml"><body><div><p>one</p></div></body></tt>`, 0, "no valid time",
		},
		"TTML that is not XML":        {"a.ttml", "1\n00:00:01,000 --> 00:00:02,000\none\n", 0, "no TTML document"},
		"a picture":                   {"a.srt", "\x89PNG\r\n\x1a\n\x00\x00", 3, "encoding"},
		"a file of another kind":      {"a.pdf", "%PDF", 0, "allowed: .srt"},
		"a file that is too large":    {"a.srt", strings.Repeat("x", captions.MaxBytes+1), 0, "are allowed"},
		"ASS without its description": {"a.ass", "[Events]\nDialogue: 0,0:00:01.00,0:00:02.50,Default,one\n", 0, "format"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := captions.Parse(c.file, []byte(c.text), "")
			wrong, ok := errors.AsType[*captions.Error](err)
			if !ok || wrong.Line != c.line || !strings.Contains(wrong.Reason, c.reason) || strings.Contains(wrong.Error(), "astisub") {
				t.Errorf("%v; want line %d, %s", err, c.line, c.reason)
			}
		})
	}
}

// Parse reads back the cues that WebVTT has written, whatever their text contains.
func TestWebVTT_IsReadBack(t *testing.T) {
	t.Parallel()
	cues, err := captions.Parse("a.vtt", []byte("WEBVTT\n\n00:00:01.000 --> 00:00:02.000\nA --&gt; B &amp; <b>bold</b>\n\n"+
		"99:59:59.999 --> 100:00:01.000\n<v Bob>I'm here &lt;script>alert(1)&lt;/script>\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	text := string(captions.WebVTT(cues))
	again, err := captions.Parse("a.vtt", []byte(text), "")
	if err != nil || cmp.Diff(cues, again) != "" || strings.Contains(text, "<script") || strings.Count(text, "-->") != 2 {
		t.Errorf("%v\n%s%s", err, text, cmp.Diff(cues, again))
	}
}

func TestFit_ShiftsSortsAndClips(t *testing.T) {
	t.Parallel()
	got := captions.Fit([]captions.Cue{
		{Start: 9 * s, End: 12 * s, Text: "across the end"}, {Start: 20 * s, End: 21 * s, Text: "after"},
		{Start: 0, End: s, Text: "before"}, {Start: s, End: 3 * s, Text: "across the start"},
	}, -2*s, 8.5)
	want := []captions.Cue{
		{Start: 0, End: s, Text: "across the start"}, {Start: 7 * s, End: 8500 * time.Millisecond, Text: "across the end"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWrite_PutsACueIntoEverySegmentThatShowsIt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "captions-en")
	cues := []captions.Cue{
		{Start: s, End: 2 * s, Text: "one"}, {Start: 59 * s, End: 61 * s, Text: "two"}, {Start: 119 * s, End: 120 * s, Text: "three"},
	}
	if err := captions.Write(dir, cues, 125.5); err != nil {
		t.Fatal(err)
	}
	const head = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n"
	const one, two, three = "\n00:00:01.000 --> 00:00:02.000\none\n", "\n00:00:59.000 --> 00:01:01.000\ntwo\n",
		"\n00:01:59.000 --> 00:02:00.000\nthree\n"
	for name, want := range map[string]string{
		"captions.vtt": "WEBVTT\n" + one + two + three, "seg-00000.vtt": head + one + two, "seg-00001.vtt": head + two + three,
		"seg-00002.vtt": head, "captions.m3u8": "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:60\n#EXT-X-MEDIA-SEQUENCE:0\n" +
			"#EXT-X-PLAYLIST-TYPE:VOD\n#EXTINF:60.000000,\nseg-00000.vtt\n#EXTINF:60.000000,\nseg-00001.vtt\n" +
			"#EXTINF:5.500000,\nseg-00002.vtt\n#EXT-X-ENDLIST\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 5 {
		t.Error(found, err)
	}
}

// No input makes Parse panic, and what it accepts can be written and read again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"1\n00:00:01,000 --> 00:00:02,500\n<i>One\n", "WEBVTT\n\n00:01.000 --> 00:02.500 line:0 align:x\n<v Bob>x</v>\n",
		"[Events]\nFormat: Start, End, Text\nDialogue: 0:00:01.00,0:00:02.50,{\\p1}x\\Ny\n",
		`<tt xmlns="http://www.w3.org/ns/ttml"><body><div><p begin="1s" end="2s">x<br/>y</p></div></body></tt>`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, ext := range []string{".srt", ".vtt", ".ass", ".ttml"} {
			cues, err := captions.Parse("a"+ext, data, "")
			if err != nil {
				continue
			}
			cues = captions.Fit(cues, 0, 1000)
			if len(cues) == 0 {
				continue
			}
			again, err := captions.Parse("a.vtt", captions.WebVTT(cues), "")
			if err != nil || len(again) != len(cues) {
				t.Fatalf("%s %q: %d cues become %d: %v\n%s", ext, data, len(cues), len(again), err, captions.WebVTT(cues))
			}
		}
	})
}
