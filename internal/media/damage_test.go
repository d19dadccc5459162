package media

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// damageFile copies a file and overwrites a part of it with zeros. The part is given
// as shares of the length.
func damageFile(t *testing.T, file string, from, to float64) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[int(from*float64(len(b))):int(to*float64(len(b)))])
	damaged := filepath.Join(t.TempDir(), "damaged"+filepath.Ext(file))
	if err := os.WriteFile(damaged, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return damaged
}

func TestTranscode_PublishesDamagedSourceWithWarning(t *testing.T) {
	t.Parallel()
	const length = 20
	for name, codecs := range map[string]string{
		"a.mp4": h264 + " -c:a aac", "a.mkv": h264 + " -c:a aac", "a.flv": h264 + " -c:a aac",
		"a.ts": h264 + " -c:a aac", "b.ts": " -c:v mpeg2video -q:v 1 -c:a mp2", "a.mpg": " -c:v mpeg2video -c:a mp2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// With noise, a tenth of the bytes is a tenth of the time, which is more
			// than a demuxer skips by itself.
			whole := makeClip(t, name,
				"-f lavfi -i testsrc2=s=320x180:r=25:d=20,noise=alls=20 -f lavfi -i sine=d=20 -g 25"+codecs)
			r := publish(t, damageFile(t, whole, 0.45, 0.55))
			d := r.out.Damage
			if d == nil || d.Seconds < 0.05*length || d.Seconds > 0.2*length ||
				math.Abs(float64(d.Frames)-25*d.Seconds) > 4 || d.Errors == 0 {
				t.Fatalf("damage %+v", d)
			}
			if len(r.out.Warnings) != 1 || !strings.Contains(r.out.Warnings[0], "s of the picture are missing") {
				t.Errorf("warnings %q", r.out.Warnings)
			}
			if math.Abs(r.out.Duration-length) > 0.2 {
				t.Errorf("it lasts %.2f s", r.out.Duration)
			}
			if undamaged := publish(t, whole).out; undamaged.Damage != nil {
				t.Errorf("without damage: %+v", undamaged.Damage)
			}
		})
	}
}

// The limit is the same for demuxer and decoder errors.
func TestTranscode_RejectsMostlyDamagedSource(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.mp4", "a.ts"} {
		whole := makeClip(t, name, "-f lavfi -i testsrc2=s=320x180:r=25:d=12 -g 25"+h264)
		src := damageFile(t, whole, 0.2, 0.8)
		info, err := fastTools.Probe(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fastTools.Transcode(t.Context(), src, info, Ladder(info), t.TempDir(), nil)
		wantRejected(t, err, "could be decoded")
	}
}

func TestProbe_WarnsOrRejectsUnreadEnd(t *testing.T) {
	t.Parallel()
	whole := makeClip(t, "a.mkv", "-f lavfi -i testsrc2=s=320x180:r=25:d=12,noise=alls=20 -g 25 -q:v 3 -c:v mpeg4")
	if info, err := fastTools.Probe(t.Context(), whole); err != nil || len(info.Warnings) != 0 {
		t.Fatalf("whole: %v, %q", err, info.Warnings)
	}
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	noise := func(n int) []byte {
		tail := make([]byte, n)
		for i := range tail {
			tail[i] = byte(i*i>>3) | 1
		}
		return tail
	}
	for name, c := range map[string]struct {
		tail    []byte
		warning bool
		refused bool
	}{
		"padded":                {make([]byte, 2*len(b)), false, false},
		"a third unreadable":    {noise(len(b) / 2), true, false},
		"most of it unreadable": {noise(2 * len(b)), false, true},
	} {
		file := filepath.Join(t.TempDir(), "a.mkv")
		if err := os.WriteFile(file, append(b[:len(b):len(b)], c.tail...), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := fastTools.Probe(t.Context(), file)
		if c.refused {
			wantRejected(t, err, "can be read")
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		warned := strings.Contains(strings.Join(info.Warnings, "\n"), "% of the file cannot be read")
		if warned != c.warning {
			t.Errorf("%s: warnings %q", name, info.Warnings)
		}
	}
}

func TestTranscode_DoesNotCountPausesAsDamage(t *testing.T) {
	t.Parallel()
	// 100 frames in pairs, half a second between the pairs, and one error message.
	v := &Video{Frames: 100, FPS: 4, Duration: 25}
	d := measureDamage(v, frameList{frames: 100, end: 25, gaps: 49, gapSeconds: 24}, 1)
	if d.Seconds != 0 || d.Frames != 0 || d.Errors != 1 {
		t.Errorf("pauses: %+v", d)
	}
	v = &Video{Frames: 500, FPS: 25, Duration: 20}
	d = measureDamage(v, frameList{frames: 450, end: 20, gaps: 1, gapSeconds: 2.04}, 9)
	if math.Abs(d.Seconds-2) > 0.01 || d.Frames != 50 {
		t.Errorf("a hole: %+v", d)
	}
	if d := measureDamage(v, frameList{frames: 498, end: 20}, 9); d.Seconds != 0 {
		t.Errorf("two frames fewer: %+v", d)
	}
}
