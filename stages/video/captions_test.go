package video

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/internal/captiontest"
	"github.com/cuelight/cuelight/store"
)

// filmWithCaptions has an English and a German track, one whose text begins after the end, captions inside its pictures, and two
// chapters.
func filmWithCaptions(t *testing.T) string {
	t.Helper()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	dir := t.TempDir()
	pictures, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-i", clips.picture, "-c:v", "copy", "-f", "h264", "-").Output()
	captioned := filepath.Join(dir, "captioned.h264")
	if err == nil {
		err = os.WriteFile(captioned, captiontest.InsertA53(pictures, captiontest.Cue{Text: "Hi", From: 10, To: 20}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-nostdin", "-v", "error", "-r", "10", "-i", captioned, "-i", clips.picture}
	for name, text := range map[string]string{
		"a.srt": "1\n00:00:00,500 --> 00:00:02,000\nHello\n", "b.srt": "1\n00:00:01,000 --> 00:00:09,000\nHallo\n",
		"c.srt": "1\n00:01:00,000 --> 00:01:01,000\nlate\n",
		"chapters.txt": ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=1000\ntitle=The coast\n" +
			"[CHAPTER]\nTIMEBASE=1/1000\nSTART=1000\nEND=60000\ntitle=The fjord\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	film := filepath.Join(dir, "film.mkv")
	args = append(args, "-i", filepath.Join(dir, "a.srt"), "-i", filepath.Join(dir, "b.srt"), "-i", filepath.Join(dir, "c.srt"),
		"-f", "ffmetadata", "-i", filepath.Join(dir, "chapters.txt"), "-map_chapters", "5",
		"-map", "0", "-map", "1:a", "-map", "2", "-map", "3", "-map", "4", "-c", "copy", "-metadata:s:s:0", "language=eng",
		"-metadata:s:s:1", "language=ger", film)
	if out, err := exec.Command("ffmpeg", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return film
}

func TestStages_PublishTheCaptionsOfTheSource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ isRemote, inBucket bool }{
		"a worker with the directories": {}, "a remote worker": {isRemote: true}, "a remote worker and a bucket": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bucket *Bucket
			if c.inBucket {
				bucket = newBucketHosts(t).bucket("data")
			}
			s := newRemoteSiteOver(t, bucket)
			if c.isRemote {
				s.workLocally(RemoteStageNames()...)
				s.workRemotely(s.url, "key-1")
			} else {
				s.workLocally()
			}
			_, p := s.waitPublished(s.submit(filmWithCaptions(t)))
			master := read(t, filepath.Join(s.PublishDir, p.Master))
			for _, want := range []string{
				`LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,FORCED=NO,URI="` + filepath.Base(p.Generation) + `/captions-en/captions.m3u8"`,
				`LANGUAGE="de"`, `SUBTITLES="captions"`, `CLOSED-CAPTIONS=NONE`,
				`NAME="Closed captions",DEFAULT=NO,AUTOSELECT=YES,FORCED=NO,CHARACTERISTICS="public.accessibility.`,
				`#EXT-X-SESSION-DATA:DATA-ID="com.apple.hls.chapters",URI="` + filepath.Base(p.Generation) + `/chapters.json"`,
			} {
				if !strings.Contains(master, want) {
					t.Errorf("no %s in\n%s", want, master)
				}
			}
			if n := strings.Count(master, "TYPE=SUBTITLES"); n != 3 {
				t.Errorf("%d tracks in\n%s", n, master)
			}
			if mpd := read(t, filepath.Join(s.PublishDir, p.Manifest)); !strings.Contains(mpd, "<BaseURL>captions-de/captions.vtt</BaseURL>") {
				t.Errorf("no captions in\n%s", mpd)
			}
			german := read(t, filepath.Join(s.PublishDir, p.Generation, "captions-de", "seg-00000.vtt"))
			if want := "\n00:00:01.000 --> 00:00:03."; !strings.Contains(german, want) || !strings.HasSuffix(german, "\nHallo\n") {
				t.Errorf("no %q in\n%s", want, german)
			}
			closed := read(t, filepath.Join(s.PublishDir, p.Generation, "captions-2", "captions.vtt"))
			if !strings.Contains(closed, " --> 00:00:0") || !strings.HasSuffix(closed, "\nHi\n") {
				t.Errorf("closed captions\n%s", closed)
			}
			chapters := read(t, filepath.Join(s.PublishDir, p.Generation, "chapters.vtt"))
			// The container moved picture and sound by some milliseconds.
			if !regexp.MustCompile(`\n00:00:0(0\.9|1\.0)\d+ --> 00:00:03\.\d+\nThe fjord\n$`).MatchString(chapters) {
				t.Errorf("chapters.vtt\n%s", chapters)
			}
			if text := read(t, filepath.Join(s.PublishDir, p.Generation, "chapters.json")); !strings.Contains(text, `"title": "The fjord"`) {
				t.Errorf("chapters.json\n%s", text)
			}
			description := read(t, filepath.Join(s.PublishDir, p.Metadata))
			for _, want := range []string{`"dir": "captions-de"`, `"title": "The fjord"`, "the subtitle stream 4 is left out"} {
				if !strings.Contains(description, want) {
					t.Errorf("no %s in\n%s", want, description)
				}
			}
		})
	}
}

func TestAssemble_AddsAttachedCaptionsWithoutTranscodingAgain(t *testing.T) {
	t.Parallel()
	s := newRemoteSite(t)
	var attached []AttachedCaptions
	var mu sync.Mutex // guards attached
	s.Captions = func(context.Context, store.ID) ([]AttachedCaptions, error) {
		mu.Lock()
		defer mu.Unlock()
		return attached, nil
	}
	s.workLocally()
	task := s.submit(filmWithCaptions(t))
	before, p := s.waitPublished(task)
	if master := read(t, filepath.Join(s.PublishDir, p.Master)); strings.Contains(master, "captions-fr") {
		t.Fatalf("captions before they were attached\n%s", master)
	}
	mu.Lock()
	attached = []AttachedCaptions{
		{Language: "fr", Default: true, WebVTT: []byte("WEBVTT\n\n00:01.000 --> 00:02.000\nBonjour\n")},
		{Language: "de", Name: "Deutsch", SDH: true, WebVTT: []byte("WEBVTT\n\n00:01.000 --> 00:02.000\n[Musik]\n")},
	}
	mu.Unlock()
	if err := s.Retry(t.Context(), task, assembleStage); err != nil {
		t.Fatal(err)
	}
	after, p := s.waitPublished(task)
	if after.Dir != before.Dir {
		t.Errorf("the video was transcoded again: %s, before %s", after.Dir, before.Dir)
	}
	master := read(t, filepath.Join(s.PublishDir, p.Master))
	generation := filepath.Base(p.Generation)
	for _, want := range []string{
		`NAME="français",LANGUAGE="fr",DEFAULT=YES,AUTOSELECT=YES,FORCED=NO,URI="` + generation + `/captions-fr/captions.m3u8"`,
		`NAME="Deutsch (2)",LANGUAGE="de",DEFAULT=NO`, generation + `/captions-de-2/captions.m3u8"`, `LANGUAGE="en",DEFAULT=NO`,
	} {
		if !strings.Contains(master, want) {
			t.Errorf("no %s in\n%s", want, master)
		}
	}
	if text := read(t, filepath.Join(s.PublishDir, p.Generation, "captions-fr", "seg-00000.vtt")); !strings.HasSuffix(text, "\nBonjour\n") {
		t.Errorf("%q", text)
	}
	if text := read(t, filepath.Join(s.PublishDir, p.Metadata)); !strings.Contains(text, `"dir": "captions-fr"`) {
		t.Errorf("metadata.json has no attached captions: %s", text)
	}
}
