package media

import (
	"fmt"
	"math"
)

// FrameRun are consecutive frames that are shown at nearly equal intervals. Times are in ticks of 1/120000 s after the
// first frame of the output.
type FrameRun struct {
	First  int64   `json:"first"`
	Step   float64 `json:"step,omitempty"`
	Frames int64   `json:"frames"`
}

const (
	// runSlack is how far a frame may be from the time that its run gives, shownSlack how far two lists may differ; both
	// in ticks. A second frame that is shown 0.05 s late is visible to nobody.
	runSlack   = videoTimescale / 200
	shownSlack = videoTimescale / 20
	// maxFrameRuns limits what is stored of a source with irregular frames. Then its times are unknown.
	maxFrameRuns = 200
)

// runBuilder describes the times of frames by runs.
type runBuilder struct {
	closed   []FrameRun
	current  FrameRun
	min, max float64 // of the step
}

func (b *runBuilder) add(at int64) {
	if n := float64(b.current.Frames); n > 0 {
		least := max(b.min, (float64(at-b.current.First)-runSlack)/n)
		most := min(b.max, (float64(at-b.current.First)+runSlack)/n)
		if least <= most {
			b.min, b.max = least, most
			b.current.Frames++
			return
		}
	}
	b.closed = b.runs()
	b.current, b.min, b.max = FrameRun{First: at, Frames: 1}, math.Inf(-1), math.Inf(1)
}

func (b *runBuilder) runs() []FrameRun {
	if b.current.Frames == 0 {
		return b.closed
	}
	if b.current.Frames > 1 {
		b.current.Step = (b.min + b.max) / 2
	}
	return append(b.closed, b.current)
}

// runsOf describes times, in ticks after the first; nil if there would be too many runs.
func runsOf(times []int64) []FrameRun {
	var b runBuilder
	for _, t := range times {
		b.add(t - times[0])
	}
	return limitRuns(b.runs())
}

func limitRuns(runs []FrameRun) []FrameRun {
	if len(runs) > maxFrameRuns {
		return nil
	}
	return runs
}

func (r FrameRun) at(frame int64) float64 { return float64(r.First) + float64(frame)*r.Step }

// compareTimes returns an error if a frame of a rendition is not at its time. Both lists are linear between the ends of
// their runs, so it compares only those.
func (s *renditionFiles) compareTimes(want []FrameRun) error {
	isMoved, got := s.segmentStarts(), s.runs
	var w, g, done int64 // frames before the current runs, and before the next comparison
	for len(want) > 0 && len(got) > 0 {
		end := min(w+want[0].Frames, g+got[0].Frames)
		first, last := done, end-1
		if isMoved[first] {
			first++
		}
		if isMoved[last] {
			last--
		}
		for _, frame := range []int64{first, last} {
			a, b := want[0].at(frame-w), got[0].at(frame-g)
			if first <= last && math.Abs(a-b) > shownSlack {
				return fmt.Errorf("its frames are shown at other times: frame %d at %.3f s instead of %.3f s", frame,
					b/videoTimescale, a/videoTimescale)
			}
		}
		if done = end; w+want[0].Frames == end {
			w, want = end, want[1:]
		}
		if g+got[0].Frames == end {
			g, got = end, got[1:]
		}
	}
	return nil
}

// segmentStarts are the first frames of all segments but the first one. ffmpeg may show them at another time: it guesses
// how long the last frame of the segment before lasts.
func (s *renditionFiles) segmentStarts() map[int64]bool {
	starts, n := make(map[int64]bool), int64(0)
	for _, g := range s.segments {
		starts[n] = n > 0
		n += g.frames
	}
	return starts
}

// knownFrameTimes computes when the frames of the output are shown from the packets; nil if that is not certain.
func knownFrameTimes(info *Info, p *Packets) []FrameRun {
	if uncertainTimes(info) != "" || p.check() != nil {
		return nil
	}
	f, err := newFrameTimes(info, p)
	if err != nil {
		return nil
	}
	return runsOf(f.shown)
}
