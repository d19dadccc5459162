package media

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

const (
	// pictureLength is how long pictures are shown at least, in seconds, if nothing follows.
	pictureLength = 0.5
	// afterFrame is how long after a frame's start it is compared: more than containers round, and less than any
	// frame lasts.
	afterFrame = 0.002
	// A moment costs about as much as encoding a second. A video has one for every minute that it has begun, up to
	// maxMoments.
	maxMoments = 6
)

// moment is a time at which renditions are compared with the source.
type moment struct {
	at      float64 // seconds from the start of the output
	segment int     // of the video renditions
	isOnly  bool    // the segment has one frame, whose end ffmpeg may not know
	// isSeam means that it is the start of a chunk. The source is decoded from before the keyframe with which the
	// encoder began: if that is none, the same wrong pictures would be compared.
	isSeam bool
}

// chooseMoments chooses times in the middle of equal parts: the same in every attempt. A chunk has one in its middle, and
// its start.
func (p pictureCheck) chooseMoments() ([]moment, error) {
	start, length, n := 0.0, p.renditions[0].files.duration(), 1
	if p.cut != nil {
		start, length = p.cut.outputStart(), p.cut.plan.Seconds(p.cut.n, p.info)
	} else {
		n = min(int(length/60)+1, maxMoments)
	}
	var list []moment
	for i := range n {
		m, err := p.renditions[0].momentNear(p.dir, start+(float64(i)+0.5)/float64(n)*length)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	if p.cut == nil || p.cut.chunk().Seek == 0 {
		return list, nil
	}
	seam, err := p.renditions[0].momentNear(p.dir, start)
	seam.isSeam = true
	return append(list, seam), err
}

// momentNear chooses the frame that is shown at a time.
func (r writtenRendition) momentNear(dir string, at float64) (moment, error) {
	s := r.files
	k := 0
	for k+1 < len(s.segments) && s.shownAt(s.segments[k+1].firstPTS) <= at {
		k++
	}
	times, err := segmentTimes(filepath.Join(dir, r.dir), s.segments[k].name)
	if err != nil {
		return moment{}, err
	}
	isOnly := len(times) == 1
	if !isOnly {
		times = times[:len(times)-1] // ffmpeg may not know how long the last one is shown
	}
	i, _ := slices.BinarySearch(times, s.ticks(at)+s.editStart+1)
	return moment{segment: k, at: s.shownAt(times[max(i-1, 0)]) + afterFrame, isOnly: isOnly}, nil
}

// shownAt is when a frame is presented, in seconds from the start of the output.
func (s *renditionFiles) shownAt(pts int64) float64 { return s.seconds(pts - s.editStart) }

func (s *renditionFiles) ticks(seconds float64) int64 {
	return int64(math.Round(seconds * float64(s.timescale)))
}

// segmentTimes reads the presentation times of a segment's frames, in order.
func segmentTimes(dir, name string) ([]int64, error) {
	g, err := readSegment(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("segment %s: %w", name, err)
	}
	return g.times, nil
}
