package media

import (
	"crypto/rand"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"path/filepath"
	"slices"
)

const (
	// pictureGap is how many seconds apart the two pictures of a moment are, if
	// its segment is long enough. Their difference shows whether the same moves
	// at the same time.
	pictureGap = 0.5
	// afterFrame is how long after a frame's start it is compared: more than
	// containers round, and less than any frame lasts.
	afterFrame = 0.002
	// soundLead is how much of the source's sound is compared before and after
	// that of a rendition, whose length is soundSeconds.
	soundSeconds, soundLead = 1.0, 0.1
	// The number of moments is chosen for this share of the encoder's time, up to
	// maxMoments. Sources below a minute have shortMoments at least.
	momentShare              = 0.02
	maxMoments, shortMoments = 6, 2
	damagedMoments           = 3
)

// moment is a time at which renditions are compared with the source.
type moment struct {
	at      float64 // seconds from the start of the output
	gap     float64 // seconds from the first picture to the second
	segment int     // of the video renditions
	// isSeam means that it is the start of a chunk. The source is decoded from before the keyframe with which the
	// encoder began: if that is none, the same wrong pictures would be compared.
	isSeam bool
}

// momentCount limits the cost of the comparison. A chunk has one moment at least, and
// as many in proportion as the whole. One with damage has three, because some may differ.
func (u *untrustedCheck) momentCount() int {
	if u.cut == nil {
		return u.wholeMoments(u.out.Expected)
	}
	whole := int64(0)
	for _, c := range u.cut.plan.Chunks {
		whole += c.Frames
	}
	share := float64(u.cut.chunk().Frames) / float64(whole)
	n := int(math.Ceil(share * float64(u.wholeMoments(whole))))
	if u.out.DecodeErrors > 0 {
		n = max(n, damagedMoments)
	}
	return max(n, 1)
}

// wholeMoments is the number for so many frames, if all are checked. The costs are those of x264 with
// preset veryfast on still pictures, in seconds of a processor; others take longer.
func (u *untrustedCheck) wholeMoments(frames int64) int {
	const (
		encodePixel, decodePixel, comparePixel = 8e-9, 3e-9, 30e-9
		start                                  = 0.12 // of a child
	)
	v, pixels := u.info.Video, 0.0
	if v == nil {
		return shortMoments
	}
	for _, r := range u.rungs {
		pixels += float64(r.Width * r.Height)
	}
	encode := encodePixel * pixels * float64(frames)
	group := float64(v.Frames) / float64(max(v.Keyframes, 1))
	once := start + comparePixel*pixels + decodePixel*(float64(v.CodedWidth*v.CodedHeight)*(group/2+pictureGap*v.FPS)+
		pixels*(keyframeSeconds/2+pictureGap)*v.outputRate())
	n := min(int(momentShare*encode/once), maxMoments)
	if u.info.Duration < 60 {
		return max(n, shortMoments)
	}
	return max(n, 1)
}

// chooseMoments chooses random times, one in each equal part of the duration, and the start of a chunk. The
// worker cannot know the random ones, because their seed is made here.
func (u *untrustedCheck) chooseMoments() ([]moment, error) {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	random := mathrand.New(mathrand.NewChaCha8(seed))
	list := make([]moment, u.momentCount())
	start, length := 0.0, u.out.Duration
	if u.cut != nil {
		start, length = u.cut.outputStart(), u.cut.plan.Seconds(u.cut.n, u.info)
	}
	for i := range list {
		at := start + (float64(i)+random.Float64())/float64(len(list))*length
		list[i] = moment{at: at}
		if len(u.video) == 0 {
			continue
		}
		var err error
		if list[i], err = u.video[0].momentNear(u.dir, at); err != nil {
			return nil, err
		}
	}
	if u.cut == nil || u.cut.chunk().Seek == 0 {
		return list, nil
	}
	seam, err := u.video[0].momentNear(u.dir, start)
	seam.isSeam = true
	return append(list, seam), err
}

// momentNear chooses the frame that is shown at a time, and one half a second later
// in the same segment. If there is none, it chooses an earlier pair.
func (r deliveredRendition) momentNear(dir string, at float64) (moment, error) {
	s := r.files
	k := 0
	for k+1 < len(s.segments) && s.shownAt(s.segments[k+1].firstPTS) <= at {
		k++
	}
	times, err := segmentTimes(filepath.Join(dir, r.dir), s.segments[k].name)
	if err != nil {
		return moment{}, err
	}
	if len(times) > 2 {
		times = times[:len(times)-1] // ffmpeg may not know how long the last one is shown
	}
	second := s.ticks(pictureGap)
	i, _ := slices.BinarySearch(times, s.ticks(at)+s.editStart+1)
	i = max(i-1, 0)
	j, _ := slices.BinarySearch(times, times[i]+second)
	if j == len(times) {
		j = len(times) - 1
		i, _ = slices.BinarySearch(times, times[j]-second)
	}
	m := moment{segment: k, at: s.shownAt(times[i]) + afterFrame, gap: s.seconds(times[j] - times[i])}
	if m.gap <= 0 {
		m.gap = afterFrame // one frame, twice
	}
	return m, nil
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
