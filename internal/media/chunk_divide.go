package media

import (
	"math"
	"slices"
	"sort"
)

const (
	segmentTicks = segmentSeconds * videoTimescale
	// keyframeSlack is the 0.0005 s of keyframeExpression.
	keyframeSlack = videoTimescale / 2000
	// minTailTicks is the shortest last segment that may be a chunk's only one. It is above minTailSeconds,
	// because the duration of the last frame is not known yet.
	minTailTicks = videoTimescale
	// maxWastedShare is how much of the source may be decoded in vain, because chunks begin between keyframes.
	maxWastedShare = 0.5
	// reorderedFrames is how many frames B-frames may delay the picture; x264 delays it by two at most.
	reorderedFrames = 2
	// leadFrames is how many frames a lead-in has at most, within a second. With 20, the frames after a seam are as
	// good as in an undivided transcode (docs/performance.md).
	// It does not cross a keyframe if the one before is more than maxLeadSeek seconds away, all of which would be
	// decoded.
	leadFrames, maxLeadSeek = 20, 4.0
)

// divide makes chunks of so many segments.
func (f *frameTimes) divide(perChunk int) (*ChunkPlan, error) {
	starts, ok := f.segmentStarts(f.shown[0])
	if !ok {
		return nil, &indivisibleError{"a frame is at the very edge of a segment"}
	}
	first := f.chunkStarts(starts, perChunk)
	if len(first) < 2 {
		return nil, &indivisibleError{"it is shorter than two chunks"}
	}
	p := &ChunkPlan{TimeBase: f.timeBase, Zero: f.zero, SegmentTicks: f.segment, Head: f.shown[:min(len(f.shown), reorderedFrames+1)]}
	for i, segment := range first {
		end := len(starts)
		if i+1 < len(first) {
			end = first[i+1]
		}
		c, err := f.chunk(starts, segment, end)
		if err != nil {
			return nil, err
		}
		p.Chunks = append(p.Chunks, c)
	}
	if f.wasted > maxWastedShare*f.seconds(f.decoded[len(f.decoded)-1]-f.decoded[0]) {
		return nil, &indivisibleError{"its keyframes are too far apart"}
	}
	return p, nil
}

// segmentStarts lists the output frames that are keyframes, with which segments begin; zero is the time of the output's first. ok is
// false if rounding could decide about one of them.
func (f *frameTimes) segmentStarts(zero int64) (starts []int, ok bool) {
	last := int64(-1)
	for i, t := range f.shown {
		if f.starts != nil {
			if _, isStart := slices.BinarySearch(f.starts, t-zero); isStart {
				starts = append(starts, i)
			}
			continue
		}
		at := t - zero + keyframeSlack
		if at%f.segment == 0 {
			return nil, false
		}
		if segment := at / f.segment; segment > last {
			starts, last = append(starts, i), segment
		}
	}
	return starts, true
}

// chunkStarts lists the first segment of each chunk. A rest of less than half a chunk, and a last segment that
// will be merged into the one before it, belong to the last chunk.
func (f *frameTimes) chunkStarts(starts []int, perChunk int) []int {
	var first []int
	tail := f.shown[len(f.shown)-1] - f.shown[starts[len(starts)-1]]
	for segment := 0; segment < len(starts); segment += perChunk {
		rest := len(starts) - segment
		if segment > 0 && (2*rest < perChunk || rest == 1 && tail < minTailTicks) {
			break
		}
		first = append(first, segment)
	}
	return first
}

// chunk describes the chunk from one segment to before another.
func (f *frameTimes) chunk(starts []int, segment, end int) (Chunk, error) {
	from, to := starts[segment], len(f.shown)
	source, sourceEnd := f.firstOrigin(from), len(f.decoded)
	if end < len(starts) {
		to = starts[end]
		sourceEnd = f.firstOrigin(to)
	}
	if segment == 0 {
		source = 0
	}
	shown, decoded := f.shown[from:to], f.decoded[source:sourceEnd]
	c := Chunk{
		Segment: segment, Segments: end - segment,
		Start: shown[0], Frames: int64(len(shown)), Times: digestTimes(shown),
		Source: decoded[0], Decoded: int64(len(decoded)), DecodedTimes: digestTimes(decoded),
		Before: f.shown[max(0, from-reorderedFrames):from],
	}
	if c.Seek, c.Earlier = f.firstSeek, f.firstSeek; segment > 0 {
		lead := f.leadIn(from)
		c.Lead, c.LeadSource = f.shown[lead], f.decoded[f.origin[lead]]
		c.Seek, c.Earlier = f.seekTo(f.decoded[max(0, f.origin[lead]-f.preroll)])
	}
	c.SegmentTime = f.segmentTime(starts[segment:end])
	if len(shown) <= reorderedFrames {
		return c, &indivisibleError{"it has too few frames"}
	}
	return c, nil
}

// leadIn is the first frame of the lead-in of the chunk that begins with an output frame. If a keyframe is in it,
// and the one before is far away, it begins there.
func (f *frameTimes) leadIn(from int) int {
	lead := from
	for lead > from-leadFrames && f.shown[from]-f.shown[lead-1] <= videoTimescale {
		if k, ok := slices.BinarySearch(f.keys, f.decoded[f.origin[lead]]); ok && f.interval(k) > maxLeadSeek {
			break
		}
		lead--
	}
	return lead
}

// interval is how many seconds before keyframe k the one before it is.
func (f *frameTimes) interval(k int) float64 { return f.seconds(f.keys[k] - f.keys[max(k-1, 0)]) }

// firstOrigin is the first decoded frame that belongs to the chunk beginning with an output frame. If that is
// made of a second field, the decoded frame belongs to the chunk before.
func (f *frameTimes) firstOrigin(shown int) int {
	if shown > 0 && f.origin[shown-1] == f.origin[shown] {
		return f.origin[shown] + 1
	}
	return f.origin[shown]
}

// seekMargin is more than what ffmpeg subtracts from a time in containers that are indexed by decoding time, if
// the picture has B-frames: three frames of 23 a second.
const seekMargin = 3.0/23 + 0.001

// seekTo returns where ffmpeg must seek to begin with the last keyframe up to a frame, and with the one before it.
func (f *frameTimes) seekTo(frame int64) (seek, earlier float64) {
	k := sort.Search(len(f.keys), func(i int) bool { return f.keys[i] > frame }) - 1
	f.wasted += f.seconds(frame - f.keys[max(k, 0)])
	return f.seekToKey(k), f.seekToKey(k - 1)
}

// seekToKey returns where ffmpeg must seek to begin with keyframe k; 0 means the start. It finds the keyframe at a
// time or the one before; beginning too early costs time, beginning too late is an error.
func (f *frameTimes) seekToKey(k int) float64 {
	if k <= 0 {
		return 0
	}
	at, margin := f.seconds(f.keys[k])-f.fileStart, seekMargin
	if k+1 < len(f.keys) {
		margin = min(margin, f.seconds(f.keys[k+1]-f.keys[k])/2)
	}
	if f.exact {
		margin = min(margin, 0.001)
	}
	return math.Round((at+margin)*1e6) / 1e6
}

// segmentTime is the option with which ffmpeg, starting to count at a chunk's first frame, begins a segment at each of the chunk's
// keyframes, of which none is later than its multiple of it.
func (f *frameTimes) segmentTime(starts []int) (seconds float64) {
	us := f.segment * 1e6 / videoTimescale
	for k, i := range starts[1:] {
		us = min(us, (f.shown[i]-f.shown[starts[0]])*1e6/videoTimescale/int64(k+1))
	}
	return float64(us) / 1e6
}
