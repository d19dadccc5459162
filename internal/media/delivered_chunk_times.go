package media

import (
	"fmt"
	"path/filepath"
	"slices"
)

// readTimes reads the segments of a chunk, compares the times of all frames with the plan, and returns the time in the
// files at which the presentation starts.
func (c *chunkCut) readTimes(dir string, p *playlist) (editStart int64, err error) {
	var segments []segment
	for _, entry := range p.segments {
		g, err := readSegment(filepath.Join(dir, entry.name))
		if err != nil {
			return 0, fmt.Errorf("segment %s: %w", entry.name, err)
		}
		g.name = entry.name
		segments = append(segments, g)
	}
	return c.checkTimes(segments)
}

// checkTimes requires of a worker's segments what [chunkSegments.fix] makes of those of ffmpeg.
func (c *chunkCut) checkTimes(segments []segment) (editStart int64, err error) {
	head := c.plan.Head
	s := chunkSegments{cut: c}
	editStart = segments[0].times[0] - (c.chunk().Start - head[0])
	s.delay = slices.IndexFunc(head, func(t int64) bool { return t-head[0] == editStart })
	if s.delay < 0 {
		return 0, fmt.Errorf("its first frame is not at the time of the plan")
	}
	for _, g := range segments {
		for _, pts := range g.times {
			s.shown = append(s.shown, pts-editStart+head[0])
		}
	}
	if err := c.plan.compareTimes(c.n, s.shown); err != nil {
		return 0, err
	}
	frames := c.expectedSegments(s.shown)
	keyframes, first := make([]int, 0, len(frames)), 0
	for _, n := range frames {
		keyframes, first = append(keyframes, first), first+n
	}
	if frames, err = c.mergeTail(frames, segments, s.shown, editStart); err != nil {
		return 0, err
	}
	for i, g := range segments {
		if err := s.checkSamples(g, frames[i], keyframes, editStart); err != nil {
			return 0, fmt.Errorf("segment %s: %w", g.name, err)
		}
		s.done += frames[i]
	}
	return editStart, nil
}

// mergeTail returns how many frames each segment must have. A last segment that is too short must be part of the one
// before it, and no other may be.
func (c *chunkCut) mergeTail(frames []int, segments []segment, shown []int64, editStart int64) ([]int, error) {
	last := len(frames) - 1
	if c.next() == nil && last > 0 {
		end := segments[len(segments)-1]
		tail := end.lastPTS + end.lastDuration - editStart + c.plan.Head[0] - shown[len(shown)-frames[last]]
		if float64(tail) < minTailSeconds*videoTimescale {
			frames[last-1] += frames[last]
			frames = frames[:last]
		}
	}
	if len(frames) != len(segments) {
		return nil, fmt.Errorf("it has %d segments instead of %d", len(segments), len(frames))
	}
	return frames, nil
}

// checkSamples checks when the frames of a segment are decoded, and which are keyframes.
func (s *chunkSegments) checkSamples(g segment, frames int, keyframes []int, editStart int64) error {
	if len(g.samples) != frames {
		return fmt.Errorf("it has %d frames instead of %d", len(g.samples), frames)
	}
	move := editStart - s.cut.plan.Head[0] // from times of the output to those in the file
	for i, sample := range g.samples {
		dts, isKey := s.decodeTime(s.done+i)+move, slices.Contains(keyframes, s.done+i)
		switch {
		case sample.dts != dts:
			return fmt.Errorf("its frame %d is decoded at %d instead of %d", i, sample.dts, dts)
		case sample.pts < dts:
			return fmt.Errorf("its frame %d is shown before it is decoded", i)
		case sample.isKey != isKey || isKey && sample.pts != s.shown[s.done+i]+move:
			return fmt.Errorf("its keyframes are not those of the plan")
		}
	}
	end := g.firstDTS + g.decodeTicks
	if next := s.done + frames; s.isKnown(next) && end != s.decodeTime(next)+move {
		return fmt.Errorf("it ends at %d instead of %d", end, s.decodeTime(next)+move)
	}
	return nil
}
