package media

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Eyevinn/mp4ff/mp4"
)

// transcoded returns a valid output of two video rungs and audio, three segments
// each. Every test gets a copy to damage.
func transcoded(t *testing.T) func(t *testing.T) result {
	t.Helper()
	r := publish(t, makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=426x360:r=10:d=14 -f lavfi -i sine=d=14"+h264+"-c:a aac"))
	if len(r.out.Video) != 2 || len(r.out.Audio) != 1 || r.out.Video[0].Segments != 3 {
		t.Fatalf("output %+v", r.out)
	}
	return func(t *testing.T) result {
		t.Helper()
		c := r
		c.dir = t.TempDir()
		if err := os.CopyFS(c.dir, os.DirFS(r.dir)); err != nil {
			t.Fatal(err)
		}
		// The output must be valid after a round trip through JSON.
		c.info, c.out = &Info{}, &Output{}
		for to, from := range map[any]any{c.info: r.info, c.out: r.out} {
			b, err := json.Marshal(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, to); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
}

func TestCheck_FindsDamagedOutput(t *testing.T) {
	t.Parallel()
	fresh := transcoded(t)
	edit := func(name string, change func(string) string) func(*testing.T, result) {
		return func(t *testing.T, r result) {
			file := filepath.Join(r.dir, name)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(change(string(b))), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	dropLast := func(s string) string { return s[:strings.LastIndex(s, "#EXTINF")] + "#EXT-X-ENDLIST\n" }
	tests := []struct {
		name  string
		spoil func(*testing.T, result)
	}{
		{"a segment is missing", func(t *testing.T, r result) { remove(t, filepath.Join(r.dir, "360p/seg-00001.m4s")) }},
		{"the header is missing", func(t *testing.T, r result) { remove(t, filepath.Join(r.dir, "240p/init.mp4")) }},
		{"the playlist is missing", func(t *testing.T, r result) { remove(t, filepath.Join(r.dir, "audio/index.m3u8")) }},
		{"a segment is empty", edit("240p/seg-00002.m4s", func(string) string { return "" })},
		{"a segment is cut short", edit("240p/seg-00001.m4s", func(s string) string { return s[:len(s)-7] })},
		{
			"a segment of sound is cut at a box",
			edit("audio/seg-00001.m4s", func(s string) string { return s[:strings.Index(s, "mdat")-4] }),
		},
		{"a segment is another one", func(t *testing.T, r result) {
			b, err := os.ReadFile(filepath.Join(r.dir, "360p/seg-00000.m4s"))
			if err != nil {
				t.Fatal(err)
			}
			edit("360p/seg-00001.m4s", func(string) string { return string(b) })(t, r)
		}},
		{"a block of a segment is lost", edit("360p/seg-00001.m4s", func(s string) string {
			return s[:len(s)-4000] + string(make([]byte, 512)) + s[len(s)-3488:]
		})},
		{"a picture is turned", func(t *testing.T, r result) {
			setMatrix(t, filepath.Join(r.dir, "360p/init.mp4"), 0, 1, -1, 0)
		}},
		{"the sound is early", func(t *testing.T, r result) {
			editInit(t, filepath.Join(r.dir, "audio/init.mp4"), func(m *mp4.MoovBox) {
				m.Trak.Edts.Elst[0].Entries[0].MediaTime += sampleRate / 5
			})
		}},
		{"a part of the sound lasts a tick", func(t *testing.T, r result) {
			editSegment(t, filepath.Join(r.dir, "audio/seg-00000.m4s"), func(f *mp4.Fragment) {
				samples := f.Moof.Traf.Trun.Samples
				f.Moof.Traf.Trun.Flags |= mp4.TrunSampleDurationPresentFlag
				samples[20].Dur, samples[21].Dur = 1, 2*aacFrame-1
			})
		}},
		{
			"the playlist has no end",
			edit("360p/index.m3u8", func(s string) string { return strings.ReplaceAll(s, "#EXT-X-ENDLIST", "") }),
		},
		{"the playlist ends early", edit("360p/index.m3u8", dropLast)},
		{"the playlist of sound ends early", edit("audio/index.m3u8", dropLast)},
		{
			"the playlist says other durations",
			edit("360p/index.m3u8", func(s string) string { return strings.Replace(s, "6.000000", "5.500000", 1) }),
		},
		{
			"the playlist leads elsewhere",
			edit("360p/index.m3u8", func(s string) string { return strings.Replace(s, "seg-00001", "../240p/seg-00001", 1) }),
		},
		{
			"the target duration is too low",
			edit("360p/index.m3u8", func(s string) string { return strings.Replace(s, "DURATION:6", "DURATION:5", 1) }),
		},
		{"there is an unfinished segment", stray("240p/seg-00003.m4s.tmp")},
		{"there is an unfinished playlist", stray("240p/index.m3u8.tmp")},
		{"there is a segment nobody names", stray("240p/seg-00003.m4s")},
		{"there is a frame list", stray(decodedFrames)},
		{"a frame was lost on the way", func(_ *testing.T, r result) { r.out.Expected++ }},
		{"half of the frames were lost on the way", func(_ *testing.T, r result) { r.out.Expected /= 3 }},
		{"the source has more", func(_ *testing.T, r result) { r.info.Video.Duration *= 1.5 }},
		{"the source has more sound", func(_ *testing.T, r result) { r.info.Audio[0].Duration *= 1.5 }},
		{"the picture is gone", func(_ *testing.T, r result) { r.out.Video = nil }},
		{"all is gone", func(_ *testing.T, r result) { r.out.Video, r.out.Audio = nil, nil }},
	}
	if r := fresh(t); fastTools.Check(t.Context(), r.info, r.dir, r.out) != nil {
		t.Fatal("the copy is damaged")
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := fresh(t)
			tt.spoil(t, r)
			if err := fastTools.Check(t.Context(), r.info, r.dir, r.out); !errors.Is(err, ErrMismatch) {
				t.Errorf("error %v; want ErrMismatch", err)
			}
		})
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

func stray(name string) func(*testing.T, result) {
	return func(t *testing.T, r result) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// An encoder may add keyframes, as those of some devices do at changes of scene.
func TestCheck_FindsDifferentKeyframes(t *testing.T) {
	t.Parallel()
	r := transcoded(t)(t)
	tools := fastTools
	tools.FFmpeg = script(t, `n=$#
while [ $n -gt 0 ]; do
	a=$(printf %s "$1" | sed '/^expr:/s#/6)#/3)#g'); shift; set -- "$@" "$a"; n=$((n-1))
done
exec ffmpeg "$@"
`)
	other := publishWith(t, tools, r.src)
	if err := os.RemoveAll(filepath.Join(r.dir, "240p")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(r.dir, "240p"), os.DirFS(filepath.Join(other.dir, "240p"))); err != nil {
		t.Fatal(err)
	}
	r.out.Video[1] = other.out.Video[1]
	err := fastTools.Check(t.Context(), r.info, r.dir, r.out)
	if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "keyframes") {
		t.Errorf("error %v; want one about keyframes", err)
	}
}

func TestCheck_StopsWhenContextEnds(t *testing.T) {
	t.Parallel()
	r := transcoded(t)(t)
	ctx, cancel := background(t)
	why := errors.New("draining")
	cancel(why)
	if err := fastTools.Check(ctx, r.info, r.dir, r.out); !errors.Is(err, why) || errors.Is(err, ErrMismatch) {
		t.Errorf("error %v; want %v", err, why)
	}
}

// A terminated ffmpeg finishes its playlists as if the source ended there. This
// test also hides its exit code.
func TestTranscode_RejectsOutputOfTerminatedFFmpeg(t *testing.T) {
	t.Parallel()
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal(err)
	}
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=320x240:r=10:d=40"+h264)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	tools := fastTools
	tools.FFmpeg = script(t, `case "$*" in *-stats_period*) ;; *) exec `+real+` "$@" ;; esac
`+real+` -re "$@" & child=$!
while ! test -s 240p/seg-00000.m4s; do sleep 0.02; done
kill -TERM $child
wait $child
exit 0
`)
	dir := t.TempDir()
	if _, err := tools.Transcode(t.Context(), src, info, Ladder(info), dir, nil); !errors.Is(err, ErrMismatch) {
		t.Errorf("error %v; want ErrMismatch", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "240p", playlistName))
	if err != nil || !bytes.Contains(text, []byte("#EXT-X-ENDLIST")) {
		t.Fatalf("%v: the playlist does not look complete\n%s", err, text)
	}
}

func TestTranscode_LeavesNoProcessWhenCancelled(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=320x240:r=25:d=60"+h264)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("lease lost")
	dir := t.TempDir()
	_, err = Tools{Preset: "veryslow", Threads: 1}.Transcode(ctx, src, info, Ladder(info), dir,
		func(Progress) { cancel(why) })
	if !errors.Is(err, why) {
		t.Errorf("error %v; want %v", err, why)
	}
	if left := processesIn(t, dir); len(left) > 0 {
		t.Errorf("processes %v still work in the output folder", left)
	}
}

// processesIn finds processes by their working directory.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && at == dir {
			found = append(found, link)
		}
	}
	return found
}

func TestCheck_RefusesOutputThatLacksFramesWhoseTimesHavePassed(t *testing.T) {
	t.Parallel()
	info := &Info{Duration: 8, Video: &Video{Frames: 350, FPS: 25, Duration: 8}}
	out := &Output{Decoded: 350, Distinct: 200, Expected: 200, DecodedEnd: 8}
	if err := checkDecoded(info, out); err == nil || !strings.Contains(err.Error(), "have passed") {
		t.Errorf("150 lost frames: %v", err)
	}
	info.Video.Repeated = 150
	if err := checkDecoded(info, out); err != nil {
		t.Errorf("frames with the timestamps of others: %v", err)
	}
}
