package media

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/media/captions"
)

const textSRT = `1
00:00:01,000 --> 00:00:02,000
{\an8}<i>top</i>

2
00:00:03,000 --> 00:00:09,000
to the end
`

// subtitled makes a clip of five seconds with the text in two tracks.
func subtitled(t *testing.T, name, args string) string {
	t.Helper()
	srt := filepath.Join(t.TempDir(), "a.srt")
	if err := os.WriteFile(srt, []byte(textSRT), 0o600); err != nil {
		t.Fatal(err)
	}
	return makeClip(t, name, testPictures+"5"+testTones+"5 -i "+srt+" -i "+srt+" -map 0 -map 1 -map 2 -map 3"+h264+"-c:a aac -t 5 "+args)
}

func TestSourceCaptions_ReadsEveryTextCodec(t *testing.T) {
	t.Parallel()
	const languages = " -metadata:s:s:0 language=eng -disposition:s:0 default -metadata:s:s:1 language=eng -disposition:s:1 forced"
	for name, c := range map[string]struct {
		args, text string
		isTop      bool // the position survives
	}{
		"srt.mkv":      {"-c:s srt" + languages, "<i>top</i>", true},
		"ass.mkv":      {"-c:s ass" + languages, "<i>top</i>", true},
		"webvtt.mkv":   {"-c:s webvtt" + languages, "<i>top</i>", false},
		"mov_text.mp4": {"-c:s mov_text" + languages, "<i>top</i>", false},
		"ttml.mp4":     {"-c:s ttml" + languages, "top", false}, // ffmpeg writes no styles
		"late.mkv":     {"-c:s srt -output_ts_offset 71" + languages, "<i>top</i>", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := subtitled(t, name, c.args)
			info, err := fastTools.Probe(t.Context(), src)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			tracks, warnings, err := fastTools.SourceCaptions(t.Context(), src, info, dir)
			if err != nil || len(warnings) > 0 || len(tracks) != 2 {
				t.Fatalf("%+v %q %v", tracks, warnings, err)
			}
			if tracks[0].Dir != "captions-en" || tracks[1].Dir != "captions-en-2" || tracks[0].Language != "en" || tracks[1].Name == tracks[0].Name {
				t.Errorf("%+v", tracks)
			}
			if name != "ttml.mp4" && (tracks[0].Forced || !tracks[1].Forced) { // unknown streams have none
				t.Errorf("%+v", tracks)
			}
			want := []captions.Cue{
				{Start: time.Second, End: 2 * time.Second, Text: c.text, IsTop: c.isTop},
				{Start: 3 * time.Second, End: 5 * time.Second, Text: "to the end"},
			}
			for _, track := range tracks {
				text, err := os.ReadFile(filepath.Join(dir, track.Dir, CaptionsFile))
				if err != nil {
					t.Fatal(err)
				}
				got, err := captions.Parse(CaptionsFile, text, "")
				for i := range got { // ASS counts in hundredths of a second, and the sound of a clip may end some milliseconds later
					got[i].Start, got[i].End = got[i].Start.Round(50*time.Millisecond), got[i].End.Round(50*time.Millisecond)
				}
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Error(err, diff)
				}
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 2 {
				t.Errorf("%v %v", entries, err)
			}
		})
	}
}

func TestSourceCaptions_SaysWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "pictures.mkv", testPictures+"3"+testTones+"3 -f lavfi -i color=s=64x64:d=1 -map 0 -map 1"+h264+"-c:a aac")
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	// A stream that is announced and has no text.
	info.Subtitles = []Subtitle{{Index: info.Video.Index, Codec: "mov_text"}}
	dir := t.TempDir()
	tracks, warnings, err := fastTools.SourceCaptions(t.Context(), src, info, dir)
	if err != nil || len(tracks) > 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "left out") {
		t.Errorf("%+v %q %v", tracks, warnings, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestAcceptCaptions_TakesTheTextAlone(t *testing.T) {
	t.Parallel()
	info := &Info{Duration: 5, Subtitles: []Subtitle{
		{Index: 2, Language: "ger"}, {Index: 3, Language: "fre"}, {Index: 0, Codec: pictureCaptions},
	}}
	for _, name := range []string{"captions-de/captions.vtt", "captions-fr/captions.vtt", "captions/captions.vtt"} {
		if !IsSourceCaptions(info, name) {
			t.Errorf("%s is not expected", name)
		}
	}
	for _, name := range []string{
		"captions-de/seg-00000.vtt", "captions-en/captions.vtt", "captions.vtt", "../captions-de/captions.vtt", "captions-de//captions.vtt",
	} {
		if IsSourceCaptions(info, name) {
			t.Errorf("%s is expected", name)
		}
	}
	deliver := func(text string) string {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "captions-de"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "captions-de", CaptionsFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := deliver("WEBVTT\n\nSTYLE\n::cue { color: red }\n\n00:01.000 --> 00:09.000\nHallo <script>x</script>\n")
	tracks, warnings, err := AcceptCaptions(dir, info)
	if err != nil || len(tracks) != 1 || tracks[0].Language != "de" || len(warnings) != 1 || !strings.Contains(warnings[0], "stream 3") {
		t.Fatalf("%+v %q %v", tracks, warnings, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "captions-de", CaptionsFile))
	if want := "WEBVTT\n\n00:00:01.000 --> 00:00:05.000\nHallo x\n"; err != nil || string(text) != want {
		t.Errorf("%v %q; want %q", err, text, want)
	}
	var found []string
	entries, err := os.ReadDir(filepath.Join(dir, "captions-de"))
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if want := []string{"captions.m3u8", CaptionsFile, "seg-00000.vtt"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("%v %q; want %q", err, found, want)
	}
	if again, _, err := AcceptCaptions(dir, info); err != nil || len(again) != 1 {
		t.Errorf("a coordinator that was killed before it had recorded the result checks again: %+v %v", again, err)
	}
	tooLarge := "WEBVTT\n\n00:01.000 --> 00:02.000\nx\n\nNOTE " + strings.Repeat("x", MaxCaptionsBytes)
	for _, wrong := range []string{"", "\xff\xd8\xff\xe0", "WEBVTT\n\n00:06.000 --> 00:09.000\nafter the end\n", tooLarge} {
		if _, _, err := AcceptCaptions(deliver(wrong), info); err == nil || !strings.Contains(err.Error(), "refused the worker's output") {
			t.Errorf("%.80q: %v", wrong, err)
		}
	}
}
