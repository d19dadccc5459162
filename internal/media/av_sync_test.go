package media

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// syncSignal is seven seconds of noise and silence with a flash and a beep at 5 s, and a
// keyframe every two seconds.
const syncSignal = "-f lavfi -i color=black:s=128x96:r=25:d=7,noise=alls=30:allf=t," +
	"drawbox=c=white:t=fill:enable='between(t\\,5\\,5.2)' " +
	"-f lavfi -i sine=f=1000:d=7,volume=0:enable='not(between(t\\,5\\,5.2))' "

// flashAndBeep returns the times of the flash and of the beep in a file.
func flashAndBeep(t *testing.T, file string) (flash, beep float64) {
	t.Helper()
	flash = firstTime(t, file, "0:v", "-vf", "signalstats,metadata=mode=print:key=lavfi.signalstats.YAVG:file=-", 100)
	beep = firstTime(t, file, "0:a",
		"-af", "asetnsamples=480,astats=metadata=1:reset=1,ametadata=mode=print:key=lavfi.astats.Overall.RMS_level:file=-",
		-40)
	return flash, beep
}

func TestTranscode_KeepsSyncIfOneStreamStartsLate(t *testing.T) {
	t.Parallel()
	const encoded = "-c:v libx264 -preset veryfast -g 50 -c:a aac "
	plain := makeClip(t, "plain.mp4", syncSignal+encoded)
	tests := map[string]func(t *testing.T) string{
		"transport stream cut between keyframes": func(t *testing.T) string {
			return cutFront(t, makeClip(t, "a.ts", syncSignal+encoded), 0.1)
		},
		"transport stream cut long before a keyframe": func(t *testing.T) string {
			return cutFront(t, makeClip(t, "a.ts", syncSignal+"-c:v libx264 -preset veryfast -g 75 -c:a aac"), 0.05)
		},
		"first frame shown for 1.5 s": func(t *testing.T) string {
			return makeClip(t, "a.mkv", syncSignal+encoded+"-vf select='not(between(t\\,0.02\\,1.45))' -fps_mode passthrough")
		},
	}
	const picture, sound = "-map 0:v -map 1:a", "-map 1:v -map 0:a"
	for _, c := range []struct {
		late          float64
		maps, endings string
	}{
		{0.25, picture, "mkv"}, {0.5, picture, "mkv mp4 ts"}, {1.9, picture, "mkv"}, {3, picture, "mkv"},
		{0.5, sound, "mkv ts"}, {1.9, sound, "mp4"},
	} {
		for ending := range strings.FieldsSeq(c.endings) {
			tests[fmt.Sprintf("%v s late by %s in %s", c.late, c.maps, ending)] = func(t *testing.T) string {
				return makeClip(t, "a."+ending, fmt.Sprintf("-itsoffset %v -i %s -i %s %s -c copy", c.late, plain, plain, c.maps))
			}
		}
	}
	for name, source := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := source(t)
			// A preset with B-frames, which delay the picture.
			r := publishWith(t, Tools{Preset: "veryfast", Threads: 1}, src)
			wantFlash, wantBeep := flashAndBeep(t, src)
			flash, beep := flashAndBeep(t, filepath.Join(r.dir, MasterName))
			if off := (flash - beep) - (wantFlash - wantBeep); !isNear(off, 0, 1.0/25) {
				t.Errorf("the picture is %.3f s later than it was: flash at %.3f s, beep at %.3f s; "+
					"in the source at %.3f and %.3f s", off, flash, beep, wantFlash, wantBeep)
			}
			if want := wantFlash - r.info.Start; !isNear(flash, want, 1.5/25) {
				t.Errorf("flash at %.3f s; want %.3f", flash, want)
			}
		})
	}
}

// cutFront removes a share of a transport stream at the start.
func cutFront(t *testing.T, file string, share float64) string {
	t.Helper()
	const packet = 188
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = text[int(share*float64(len(text)/packet))*packet:]
	cut := filepath.Join(filepath.Dir(file), "cut.ts")
	if err := os.WriteFile(cut, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return cut
}

func TestProbe_ReportsUndecodableBeginning(t *testing.T) {
	t.Parallel()
	src := cutFront(t, makeClip(t, "a.ts", syncSignal+"-map 0:v -c:v libx264 -preset veryfast -g 50"), 0.1)
	r := publish(t, src)
	if r.info.Video.Undecodable < 0.5 || len(r.info.Warnings) != 1 {
		t.Errorf("%.3f s cannot be decoded, warnings %q", r.info.Video.Undecodable, r.info.Warnings)
	}
	if v := r.out.Video[0]; !isNear(v.Duration, 5, 0.1) || v.FrameRate != 25 {
		t.Errorf("it lasts %.3f s at %v frames a second; want 5 s, without a still picture in front", v.Duration, v.FrameRate)
	}
}
