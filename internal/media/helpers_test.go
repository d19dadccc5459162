package media

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/formattest"
	"github.com/cuelight/cuelight/internal/media/captions"
)

// fastTools transcode quickly; no test depends on quality. They query what ffmpeg supports once, which takes longer
// than many of the clips.
var fastTools = Tools{Preset: "ultrafast", Threads: 1, Cache: new(CapabilityCache)}

// makeClip makes a source with ffmpeg. The arguments come between the global
// options and the output's name.
func makeClip(t *testing.T, name, args string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	ffmpeg(t, append(fields(args), "file:"+file)...)
	return file
}

// fields splits at spaces, but not within single quotes.
func fields(s string) []string {
	var list []string
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			list[len(list)-1] += part
			continue
		}
		f := strings.Fields(part)
		if i > 0 && len(f) > 0 && !strings.HasPrefix(part, " ") {
			list[len(list)-1] += f[0]
			f = f[1:]
		}
		list = append(list, f...)
		if strings.HasSuffix(part, " ") {
			list = append(list, "")
		}
	}
	kept := list[:0]
	for _, f := range list {
		if f != "" {
			kept = append(kept, f)
		}
	}
	return kept
}

func ffmpeg(t *testing.T, args ...string) []byte {
	t.Helper()
	return tool(t, "ffmpeg",
		append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-threads", "1", "-y"}, args...)...)
}

func tool(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, errs.String())
	}
	return out.Bytes()
}

// result is a source and its output.
type result struct {
	src  string
	dir  string
	info *Info
	out  *Output
}

// publish runs Probe, Ladder, Transcode, Check, WriteMaster and WriteMPD, and then
// checks the output with independent programs.
func publish(t *testing.T, src string) result {
	t.Helper()
	return publishWith(t, fastTools, src)
}

func publishWith(t *testing.T, tools Tools, src string) result {
	t.Helper()
	return publishLadder(t, tools, src, LadderOptions{})
}

func publishLadder(t *testing.T, tools Tools, src string, o LadderOptions) result {
	t.Helper()
	r := result{src: src, dir: t.TempDir()}
	var err error
	if r.info, err = tools.Probe(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	if r.out, err = tools.Transcode(t.Context(), src, r.info, LadderWith(r.info, o), r.dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := tools.Check(t.Context(), r.info, r.dir, r.out); err != nil {
		t.Fatalf("%v\ninfo %+v\nvideo %+v\nout %+v", err, r.info, r.info.Video, r.out)
	}
	if r.out.Captions, _, err = tools.SourceCaptions(t.Context(), src, r.info, r.dir); err != nil {
		t.Fatal(err)
	}
	if err := tools.WriteManifests(t.Context(), r.dir, r.out); err != nil {
		t.Fatal(err)
	}
	r.independently(t)
	return r
}

// independently checks the rules of HLS, that two HLS libraries parse all playlists, that ffprobe
// counts all frames, and that ffmpeg plays everything without errors.
func (r result) independently(t *testing.T) {
	t.Helper()
	checkHLSRules(t, r.dir)
	lists := []string{MasterName}
	for _, v := range append(append([]Rendition{}, r.out.Video...), r.out.Audio...) {
		lists = append(lists, v.Playlist)
	}
	for _, c := range r.out.Captions {
		lists = append(lists, c.Dir+"/"+captions.PlaylistName)
	}
	for _, list := range lists {
		text, err := os.ReadFile(filepath.Join(r.dir, list))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := formattest.Playlist(text); err != nil {
			t.Errorf("%s: %v\n%s", list, err, text)
		}
	}
	for _, v := range r.out.Video {
		if got := countFrames(t, filepath.Join(r.dir, v.Playlist)); got != r.out.Expected {
			t.Errorf("ffprobe counts %d frames in %s; want %d", got, v.Name, r.out.Expected)
		}
	}
	for _, list := range []string{MasterName, ManifestName} {
		var options []string
		if len(r.out.Captions) > 0 {
			options = []string{"-allowed_extensions", "ALL"} // ffmpeg's DASH reader does not know .vtt
		}
		cmd := exec.CommandContext(t.Context(), "ffmpeg", slices.Concat(
			[]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-xerror"}, options, []string{
				"-i", list, "-map", "0", "-map", "-0:s", "-enc_time_base:v", "1:120000", "-f", "null", "-"})...)
		// ffmpeg's DASH reader fails with some characters in directory names.
		cmd.Dir = r.dir
		if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("ffmpeg plays %s: %v\n%s", list, err, said)
		}
	}
}

// countFrames decodes the first video stream.
func countFrames(t *testing.T, file string) int64 {
	t.Helper()
	out := tool(t, "ffprobe", "-loglevel", "error", "-count_frames", "-select_streams", "v:0",
		"-show_entries", "stream=nb_read_frames", "-of", "default=nw=1:nk=1", file)
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		t.Fatalf("count frames of %s: %v", file, err)
	}
	return n
}

// corners are the colours of the four quarters of a video's first frame: top
// left, top right, bottom left, bottom right.
func corners(t *testing.T, file string) [4]string {
	t.Helper()
	pixels := ffmpeg(t, "-i", file, "-map", "0:v:0", "-frames:v", "1",
		"-vf", "format=rgb24,scale=w=2:h=2:flags=area,format=rgb24", "-f", "rawvideo", "-")
	if len(pixels) != 12 {
		t.Fatalf("%d bytes of picture; want 12", len(pixels))
	}
	var names [4]string
	for i := range names {
		names[i] = colour(pixels[3*i], pixels[3*i+1], pixels[3*i+2])
	}
	return names
}

func colour(r, g, b byte) string {
	name := ""
	for _, c := range []struct {
		name  string
		value byte
	}{{"r", r}, {"g", g}, {"b", b}} {
		if c.value > 100 {
			name += c.name
		}
	}
	if name == "" {
		return "black"
	}
	return name
}

// quarters is a picture with red, green, blue and white quarters.
func quarters(w, h int) string {
	return fmt.Sprintf("color=red:s=%dx%d:r=10:d=1,drawbox=x=iw/2:c=0x00ff00:t=fill:h=ih/2:w=iw/2,"+
		"drawbox=y=ih/2:c=blue:t=fill:w=iw/2:h=ih/2,drawbox=x=iw/2:y=ih/2:c=white:t=fill:w=iw/2:h=ih/2", w, h)
}

// setMatrix writes a display matrix into the first track of an MP4 file.
func setMatrix(t *testing.T, file string, a, b, c, d int32) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, []byte("tkhd"))
	if at < 0 {
		t.Fatal("no track header")
	}
	for i, v := range []int32{a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30} {
		binary.BigEndian.PutUint32(content[at+4+40+4*i:], uint32(v))
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// firstTime is when a value printed by a filter first exceeds a limit.
func firstTime(t *testing.T, file, stream, kind, filter string, limit float64) float64 {
	t.Helper()
	out := ffmpeg(t, "-copyts", "-i", file, "-map", stream, kind, filter, "-f", "null", "-")
	at := math.NaN()
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if _, text, ok := strings.Cut(line, "pts_time:"); ok {
			at, _ = strconv.ParseFloat(text, 64)
		} else if _, text, ok := strings.Cut(line, "="); ok {
			if v, err := strconv.ParseFloat(text, 64); err == nil && v > limit {
				return at
			}
		}
	}
	t.Fatalf("%s never exceeds %v", filter, limit)
	return 0
}

func isNear(a, b, within float64) bool { return math.Abs(a-b) <= within }

func names(rungs []Rung) string {
	var list []string
	for _, r := range rungs {
		if r.IsAudio() {
			list = append(list, r.Name)
		} else {
			list = append(list, fmt.Sprintf("%s=%dx%d", r.Name, r.Width, r.Height))
		}
	}
	return strings.Join(list, " ")
}

// script writes a shell script to run instead of ffmpeg.
func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func background(t *testing.T) (context.Context, context.CancelCauseFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}

// mediaDir is a directory of real files, good and broken: $CUELIGHT_TEST_MEDIA, or one
// next to the checkout.
func mediaDir() string { return cmp.Or(os.Getenv("CUELIGHT_TEST_MEDIA"), "../../../shared/media") }
