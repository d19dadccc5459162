package media

import (
	"slices"
	"strings"
	"testing"
)

// framesAt is a rendition of two segments whose frames are shown at these times.
func framesAt(times []int64) *renditionFiles {
	half := int64(len(times) / 2)
	s := &renditionFiles{segments: []segment{{frames: half}, {frames: int64(len(times)) - half}}}
	var b runBuilder
	for _, t := range times {
		b.add(t)
	}
	s.runs = b.runs()
	return s
}

func TestFrameRuns_FindFramesThatAreLate(t *testing.T) {
	t.Parallel()
	const late = videoTimescale / 5
	var regular, milliseconds, irregular []int64
	for i := range int64(100) {
		regular = append(regular, i*4800)
		milliseconds = append(milliseconds, (i*100100/3000)*120)
		irregular = append(irregular, i*4800+i*i*i%7*40000*(i/10))
	}
	slices.Sort(irregular)
	for name, times := range map[string][]int64{"regular": regular, "milliseconds": milliseconds, "irregular": irregular} {
		want := runsOf(times)
		if err := framesAt(times).compareTimes(want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "irregular" && len(want) != 1 {
			t.Errorf("%s: %d runs", name, len(want))
		}
		for i := range times {
			changed := slices.Clone(times)
			changed[i] += late
			err := framesAt(changed).compareTimes(want)
			if isMoved := i == len(times)/2; (err == nil) != isMoved {
				t.Errorf("%s: frame %d is late: %v", name, i, err)
			}
			for k := i + 1; k < len(times); k++ {
				changed[k] += late
			}
			if err := framesAt(changed).compareTimes(want); err == nil {
				t.Errorf("%s: all frames from %d on are late", name, i)
			}
		}
	}
}

func TestProbe_ComputesWhenFramesAreShown(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"a.mp4":  "-f lavfi -i testsrc2=s=64x64:r=25:d=7 -f lavfi -i sine=d=7 -vf setpts=PTS+0.3/TB" + h264,
		"b.mkv":  "-f lavfi -i testsrc2=s=64x64:r=30000/1001:d=7" + h264,
		"c.mp4":  "-f lavfi -i testsrc2=s=64x64:r=30:d=13 -vf select='lt(mod(n*7919\\,13)\\,6)' -fps_mode passthrough" + h264,
		"d.mp4":  "-f lavfi -i testsrc2=s=64x64:r=120:d=3" + h264,
		"e.webm": "-f lavfi -i testsrc2=s=64x64:r=25:d=3 -c:v libvpx -auto-alt-ref 0",
	} {
		r := publish(t, makeClip(t, name, strings.ReplaceAll(args, "ultrafast", "veryfast")))
		s, err := fastTools.inspect(t.Context(), r.dir, r.out.Video[0].Playlist)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.compareTimes(r.info.Video.FrameTimes); err != nil || r.info.Video.FrameTimes == nil || r.out.FrameTimes == nil {
			t.Errorf("%s: %v; computed %v, measured %v", name, err, r.info.Video.FrameTimes, r.out.FrameTimes)
		}
	}
}
