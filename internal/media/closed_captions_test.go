package media

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/captiontest"
	"github.com/cuelight/cuelight/internal/media/captions"
)

// captioned makes a clip of six seconds with captions inside its pictures.
func captioned(t *testing.T, name, args string, cues ...captiontest.Cue) string {
	t.Helper()
	file := makeClip(t, "a.h264", "-f lavfi -i testsrc2=s=128x96:r=25:d=6"+h264+"-g 50")
	pictures, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, captiontest.InsertA53(pictures, cues...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return makeClip(t, name, "-r 25 -i "+file+" -f lavfi -i sine=d=6 -c:v copy -c:a aac "+args)
}

var twoCues = []captiontest.Cue{{Text: "It's [a]: b, c", From: 25, To: 50, IsTop: true}, {Text: "<second>", From: 75, To: 125}}

func seconds(from, to time.Duration, text string) captions.Cue {
	return captions.Cue{Start: from * time.Second, End: to * time.Second, Text: text}
}

// readSource returns the captions of a source, and the cues of the first.
func readSource(t *testing.T, src string) (tracks []Captions, cues []captions.Cue, warnings []string) {
	t.Helper()
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tracks, warnings, err = fastTools.SourceCaptions(t.Context(), src, info, dir)
	if err != nil || len(tracks) == 0 {
		return nil, nil, append(warnings, info.Warnings...)
	}
	text, err := os.ReadFile(filepath.Join(dir, tracks[0].Dir, CaptionsFile))
	if err == nil {
		cues, err = captions.Parse(CaptionsFile, text, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range cues {
		cues[i].Start, cues[i].End = cues[i].Start.Round(100*time.Millisecond), cues[i].End.Round(100*time.Millisecond)
	}
	return tracks, cues, append(warnings, info.Warnings...)
}

func TestSourceCaptions_ReadsThoseInsideThePictures(t *testing.T) {
	t.Parallel()
	want := []captions.Cue{seconds(1, 2, "It’s [a]: b, c"), seconds(3, 5, "&lt;second&gt;")}
	want[0].IsTop = true
	for name, args := range map[string]string{
		`it's a:b,c;[d]\'.mp4`: "", "late.ts": "-output_ts_offset 98",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracks, cues, warnings := readSource(t, captioned(t, name, args, twoCues...))
			wantTracks := []Captions{{Dir: "captions", Name: "Closed captions", SDH: true}}
			if diff := cmp.Diff(wantTracks, tracks) + cmp.Diff(want, cues); diff != "" || len(warnings) > 0 {
				t.Errorf("%q %s", warnings, diff)
			}
		})
	}
	t.Run("a clock that jumps", func(t *testing.T) {
		t.Parallel()
		src := captioned(t, "a.ts", "-output_ts_offset 98", twoCues...)
		one, err := os.ReadFile(src)
		if err == nil {
			err = os.WriteFile(src, slices.Concat(one, one), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Concat(want, []captions.Cue{seconds(7, 8, want[0].Text), seconds(9, 11, want[1].Text)})
		want[2].IsTop = true
		if _, cues, warnings := readSource(t, src); cmp.Diff(want, cues) != "" {
			t.Errorf("%q %s", warnings, cmp.Diff(want, cues))
		}
	})
	t.Run("no text", func(t *testing.T) {
		t.Parallel()
		if tracks, _, warnings := readSource(t, captioned(t, "a.mp4", "")); len(tracks)+len(warnings) > 0 {
			t.Errorf("%+v %q", tracks, warnings)
		}
	})
}

func TestSourceCaptions_GoesOnWithoutCaptionsThatFFmpegCannotRead(t *testing.T) {
	t.Parallel()
	src := captioned(t, "a.mp4", "", twoCues...)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	tools := fastTools
	tools.FFmpeg = script(t, `case $* in *movie*) kill -SEGV $$ ;; esac; exec ffmpeg "$@"`)
	tracks, warnings, err := tools.SourceCaptions(t.Context(), src, info, t.TempDir())
	want := []string{"the track of closed captions is left out: ffmpeg cannot read it"}
	if diff := cmp.Diff(want, warnings); err != nil || len(tracks) > 0 || diff != "" {
		t.Errorf("%+v %v %s", tracks, err, diff)
	}
}

func TestSourceCaptions_ReadsTeletext(t *testing.T) {
	t.Parallel()
	decoders, err := Tools{}.requiredDecoders(t.Context())
	if err != nil || len(decoders[teletext]) == 0 {
		t.Skip("this ffmpeg has no libzvbi")
	}
	clip := func(cues ...captiontest.Cue) string {
		text := filepath.Join(t.TempDir(), "text.ts")
		if err := os.WriteFile(text, captiontest.Teletext(cues...), 0o600); err != nil {
			t.Fatal(err)
		}
		return makeClip(t, "a.ts", testPictures+"6 -i "+text+" -map 0 -map 1 -c:s copy"+h264+
			"-output_ts_offset 98 -muxdelay 0 -muxpreload 0")
	}
	tracks, cues, warnings := readSource(t, clip(twoCues...))
	wantTracks := []Captions{{Dir: "captions-en", Name: "English", Language: "en"}}
	want := []captions.Cue{seconds(1, 2, "It's ←a→: b, c"), seconds(3, 5, "&lt;second&gt;")}
	if diff := cmp.Diff(wantTracks, tracks) + cmp.Diff(want, cues); diff != "" || len(warnings) > 0 {
		t.Errorf("%q %s", warnings, diff)
	}
	if tracks, _, warnings := readSource(t, clip()); len(tracks)+len(warnings) > 0 {
		t.Errorf("without text: %+v %q", tracks, warnings)
	}
}

func TestEncoders_LeaveOutClosedCaptions(t *testing.T) {
	t.Parallel()
	src := captioned(t, "a.mp4", "", twoCues...)
	for _, e := range []videoEncoder{libx264, stitchable} {
		args := e.args(Tools{Preset: "ultrafast"}.encoderSettings(Rung{VideoBitrate: 800_000}, "3.1"))
		if out := ffmpeg(t, append(append([]string{"-i", src}, args...), "-f", "h264", "-")...); bytes.Contains(out, []byte("GA94")) {
			t.Errorf("%q keep captions", args)
		}
	}
}
