package media

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/Eyevinn/mp4ff/mp4"
)

// chunkSegments gives the frames of a chunk's segments the times that they have in the whole output. ffmpeg
// counts from the chunk's first frame, and moves the first frame of a segment by what it guessed wrongly of the
// duration of the frame before.
type chunkSegments struct {
	cut   *chunkCut
	shown []int64 // times of the chunk's frames
	dir   string
	delay int   // how many frames B-frames delay the picture
	done  int   // frames so far
	shift int64 // from the times in the files to those of the frames; valid after the first segment
}

// expectedSegments returns how many frames each segment has, of which the first is the only keyframe.
func (c *chunkCut) expectedSegments(shown []int64) (frames []int) {
	f := frameTimes{shown: shown, segment: c.plan.segmentTicks(), starts: c.starts}
	starts, _ := f.segmentStarts(c.plan.Head[0])
	starts = append(starts, len(shown))
	for i := range starts[1:] {
		frames = append(frames, starts[i+1]-starts[i])
	}
	return frames
}

// fix rewrites all segments, and returns the time in the files at which the presentation starts.
func (s *chunkSegments) fix() (editStart int64, err error) {
	frames := s.cut.expectedSegments(s.shown)
	for i, n := range frames {
		name := segmentName(s.cut.chunk().Segment + i)
		err := rewriteMP4(filepath.Join(s.dir, name), func(parsed *mp4.File) (encoder, error) {
			return s.setTimes(parsed, s.cut.chunk().Segment+i, n)
		})
		if err != nil {
			return 0, fmt.Errorf("segment %s: %w", name, err)
		}
		s.done += n
	}
	extra := segmentName(s.cut.chunk().Segment + len(frames))
	if _, err := os.Stat(filepath.Join(s.dir, extra)); err == nil {
		return 0, fmt.Errorf("there is a segment %s; %d segments are expected", extra, len(frames))
	}
	return s.editStart(), nil
}

func (s *chunkSegments) editStart() int64 { return s.cut.plan.Head[s.delay] - s.cut.plan.Head[0] }

// setTimes sets the times of the frames of one segment.
func (s *chunkSegments) setTimes(parsed *mp4.File, number, frames int) (encoder, error) {
	if len(parsed.Segments) != 1 || len(parsed.Segments[0].Fragments) != 1 {
		return nil, fmt.Errorf("it does not have exactly one fragment")
	}
	segment := parsed.Segments[0]
	fragment := segment.Fragments[0]
	moof := fragment.Moof
	if moof == nil || moof.Mfhd == nil || len(moof.Trafs) != 1 || moof.Traf.Tfdt == nil || moof.Traf.Tfhd == nil ||
		len(moof.Traf.Truns) != 1 {
		return nil, fmt.Errorf("its fragment does not have exactly one run of frames")
	}
	traf, trun := moof.Traf, moof.Traf.Trun
	trun.AddSampleDefaultValues(traf.Tfhd, nil)
	if len(trun.Samples) != frames {
		return nil, fmt.Errorf("it has %d frames instead of %d", len(trun.Samples), frames)
	}
	order, err := s.displayOrder(trun.Samples, int64(traf.Tfdt.BaseMediaDecodeTime()))
	if err != nil {
		return nil, err
	}
	if err := s.setSamples(trun, order); err != nil {
		return nil, err
	}
	traf.Tfdt.SetBaseMediaDecodeTime(uint64(s.decodeTime(s.done) - s.cut.plan.Head[0] + s.editStart()))
	moof.Mfhd.SequenceNumber = uint32(number + 1)
	fragment.SetTrunDataOffsets()
	segment.Styp = mp4.NewStyp(segmentBrands[:4], 0, []string{segmentBrands[:4], segmentBrands[4:8], segmentBrands[8:]})
	segment.Sidx, segment.Sidxs = nil, nil
	return segment, nil
}

// setSamples sets the durations of frames, and when they are shown after they were decoded.
func (s *chunkSegments) setSamples(trun *mp4.TrunBox, order []int) error {
	for i := range trun.Samples {
		sample, dts := &trun.Samples[i], s.decodeTime(s.done+i)
		if next := s.decodeTime(s.done + i + 1); s.isKnown(s.done+i+1) && sample.Dur != uint32(next-dts) {
			sample.Dur = uint32(next - dts)
			trun.Flags |= mp4.TrunSampleDurationPresentFlag
		}
		offset := s.shown[s.done+order[i]] - dts
		if offset < 0 {
			return fmt.Errorf("its frame %d would be shown %d ticks before it is decoded", i, -offset)
		}
		if sample.CompositionTimeOffset != int32(offset) {
			sample.CompositionTimeOffset = int32(offset)
			trun.Flags |= mp4.TrunSampleCompositionTimeOffsetPresentFlag
		}
	}
	return nil
}

// displayOrder returns the position in display order of each frame of a segment, which are in decoding order. It
// checks the encoder's keyframes and times.
func (s *chunkSegments) displayOrder(samples []mp4.Sample, dts int64) ([]int, error) {
	times, byTime := make([]int64, len(samples)), make([]int, len(samples))
	for i, sample := range samples {
		times[i], byTime[i] = dts+int64(sample.CompositionTimeOffset), i
		dts += int64(sample.Dur)
	}
	if s.done == 0 {
		if err := s.findDelay(samples); err != nil {
			return nil, err
		}
		s.shift = s.shown[0] - times[0]
	}
	// The segment begins with an IDR picture, whose time ffmpeg may have moved.
	times[0] = s.shown[s.done] - s.shift
	slices.SortFunc(byTime, func(a, b int) int { return cmp.Compare(times[a], times[b]) })
	order := make([]int, len(samples))
	for position, i := range byTime {
		order[i] = position
		if got, want := times[i]+s.shift, s.shown[s.done+position]; got != want {
			return nil, fmt.Errorf("its frame %d is at %d instead of %d", position, got, want)
		}
	}
	for i, sample := range samples {
		if isKeyframe := sample.Flags&mp4.NonSyncSampleFlags == 0; isKeyframe != (i == 0) {
			return nil, fmt.Errorf("its keyframe is not its first frame alone: see frame %d", i)
		}
	}
	return order, nil
}

// findDelay finds how many frames the encoder delays the picture, from the time after which it decodes the third frame.
// x264 decodes the first ones earlier, by what it may reorder; after a lead-in, that is not the same for all.
func (s *chunkSegments) findDelay(samples []mp4.Sample) error {
	offset := int64(samples[0].CompositionTimeOffset)
	for s.delay = range min(reorderedFrames+1, len(s.shown)) {
		got, want := offset, s.shown[s.delay]-s.shown[0]
		switch {
		case len(samples) > reorderedFrames:
			got = int64(samples[0].Dur) + int64(samples[1].Dur) - offset
			want = s.shown[reorderedFrames-s.delay] - s.shown[0]
		case s.cut.leads:
			want = s.shown[0] - s.decodeTime(0)
		}
		if got == want {
			return nil
		}
	}
	return fmt.Errorf("its first frame is shown %d ticks after it is decoded", offset)
}

// decodeTime is when frame i of the chunk, in decoding order, is decoded: at the time of the frame that is so many
// frames before it in display order, whichever chunk that is in.
func (s *chunkSegments) decodeTime(i int) int64 {
	i -= s.delay
	before := s.cut.chunk().Before
	switch {
	case i >= len(s.shown):
		if next := s.cut.next(); next != nil {
			return next.Start
		}
		return 0
	case i >= 0:
		return s.shown[i]
	case s.cut.hasFramesBefore():
		return before[len(before)+i]
	}
	return s.shown[i+s.delay] - (s.shown[s.delay] - s.shown[0])
}

// isKnown reports whether the plan says when frame i is decoded. After the last chunk it does not, and ffmpeg's
// guess of the last frame's duration stays.
func (s *chunkSegments) isKnown(i int) bool { return i < len(s.shown) || s.cut.next() != nil }
