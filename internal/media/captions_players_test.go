package media

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// Captions are shown at their times, also across the end of a segment, and where the source's clock does not begin at 0.
func TestPlayers_ShowCaptionsOfTheSource(t *testing.T) {
	t.Parallel()
	browser := browsertest.Require(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	english := write("en.srt", `1
00:00:01,000 --> 00:00:03,500
Hello <i>world</i> & more

2
00:00:59,000 --> 00:01:01,500
Across the end
`)
	german := write("de.srt", "1\n00:00:02,250 --> 00:00:04,000\nÄpfel\n\n2\n00:00:59,500 --> 00:01:01,750\nSchluß\n")
	subtitles := " -i " + english + " -i " + german + " -map 0 -map 1 -map 2 -map 3" + h264 +
		"-c:a aac -metadata:s:s:0 language=eng -metadata:s:s:1 language=ger "
	clip := testPictures + "62" + testTones + "62" + subtitles
	videos := make(map[string]browsertest.Video)
	for name, args := range map[string]string{
		"text.mp4": clip + "-c:s mov_text", "late.mkv": clip + "-c:s ass -output_ts_offset 98",
	} {
		r := publish(t, makeClip(t, name, args))
		videos[name] = browsertest.Video{
			Dir: r.dir, Length: time.Duration(r.info.Duration * float64(time.Second)), Captions: []browsertest.Captions{
				{Language: "en", Label: "English", Cues: []string{
					"1.00 3.50 Hello <i>world</i> &amp; more", "59.00 61.50 Across the end"}},
				{Language: "de", Label: "Deutsch", Cues: []string{"2.25 4.00 Äpfel", "59.50 61.75 Schluß"}},
			},
		}
	}
	browser.Play(t, videos, browsertest.PlayOptions{})
}
