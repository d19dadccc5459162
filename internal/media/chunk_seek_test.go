package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// markAllKeyframes makes a container say that every frame is a keyframe.
func markAllKeyframes(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.LastIndex(text, []byte("idx1")); i >= 0 { // AVI
		const entry, keyframe = 16, 0x10
		for list := text[i+8:]; len(list) >= entry; list = list[entry:] {
			list[4] |= keyframe
		}
		for i := 0; ; { // the size of a chunk of an index of OpenDML has its highest bit set if it is no keyframe
			next := bytes.Index(text[i:], []byte("ix00"))
			if next < 0 {
				break
			}
			i += next + 4
			for n := range int(binary.LittleEndian.Uint32(text[i+8:])) {
				text[i+28+8*n+7] &^= 0x80
			}
		}
	} else {
		text = bytes.Replace(text, []byte("stss"), []byte("free"), 1)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPlanChunks_DoesNotDivideASourceWithWrongKeyframes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, args string }{
		"MPEG-4":                     {"a.mp4", small("25", 14) + "-c:v mpeg4 -bf 0 -g 100"},
		"still picture":              {"a.mp4", "-f lavfi -i smptebars=s=96x64:r=25:d=14 -c:v mpeg4 -bf 0 -g 100"},
		"AVI with a parsed codec":    {"a.avi", small("25", 14) + "-c:v mpeg4 -bf 0 -g 100"},
		"AVI, only the index counts": {"a.avi", small("25", 14) + "-c:v msmpeg4 -g 100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := makeClip(t, c.file, c.args)
			markAllKeyframes(t, src)
			d := probed(t, src)
			if d.divide(t, 6*time.Second); d.plan.Reason != errWrongStart.Error() {
				t.Errorf("%d chunks, reason %q; want %q", len(d.plan.Chunks), d.plan.Reason, errWrongStart)
			}
		})
	}
}

func TestTranscodeChunk_RefusesAStartThatNeedsEarlierFrames(t *testing.T) {
	t.Parallel()
	d := probed(t, makeClip(t, "a.mp4", small("25", 18)+"-c:v mpeg4 -bf 0 -g 100"))
	if d.divide(t, 6*time.Second); len(d.plan.Chunks) != 3 {
		t.Fatalf("%d chunks, %s; want 3", len(d.plan.Chunks), d.plan.Reason)
	}
	markAllKeyframes(t, d.src)
	d.transcodeChunk(t, 1)
	for name, seek := range map[string]float64{"frame that is no keyframe": 5, "keyframe that follows": 8.001} {
		d.plan.Chunks[1].Seek = seek
		_, err := chunkTools.TranscodeChunk(t.Context(), d.src, d.info, d.rungs, d.plan, 1, t.TempDir(), nil)
		if !errors.Is(err, ErrNotDivisible) {
			t.Errorf("%s: %v; want ErrNotDivisible", name, err)
		}
	}
}

func TestCheckDeliveredChunk_LooksAtTheStart(t *testing.T) {
	t.Parallel()
	const clip = "-f lavfi -i testsrc2=s=320x180:r=25:d=18 -pix_fmt yuv420p -bf 0 -b:v 1M -g 100 "
	d := probed(t, makeClip(t, "a.mp4", clip+"-c:v mpeg4"))
	if d.divide(t, 6*time.Second); len(d.plan.Chunks) != 3 {
		t.Fatalf("%d chunks, %s; want 3", len(d.plan.Chunks), d.plan.Reason)
	}
	honest := d.transcodeChunk(t, 1)
	const grey = "-vf drawbox=color=gray:t=fill:enable=between(t\\,5\\,6.6) "
	forged := divided{result: result{src: makeClip(t, "a.mp4", clip+grey+"-c:v mpeg4"), info: d.info}, rungs: d.rungs, plan: d.plan}
	wrong := forged.transcodeChunk(t, 1)
	markAllKeyframes(t, d.src)
	d.plan.Chunks[1].Seek = 5 // decoded from there, the source is grey until 8 s
	if _, err := d.check(t, 1, honest.Dir); err != nil {
		t.Errorf("honest chunk: %v", err)
	}
	_, err := d.check(t, 1, wrong.Dir)
	if refused, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(refused.Error(), "at 6.0 s") {
		t.Errorf("%v; want it refused for its pictures at 6.0 s", err)
	}
}
