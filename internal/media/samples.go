package media

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// checkSamples reads all segments of a rendition, and checks the data and the times of every frame without decoding it.
func (t Tools) checkSamples(ctx context.Context, dir string, s *renditionFiles) error {
	for i := range s.segments {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.step()
		if err := s.checkSegment(filepath.Join(dir, s.segments[i].name), i+1 == len(s.segments)); err != nil {
			return fmt.Errorf("segment %s: %w", s.segments[i].name, err)
		}
	}
	return nil
}

// checkSegment checks a segment, which may be the last of a rendition.
func (s *renditionFiles) checkSegment(file string, isLast bool) error {
	g, err := readSegment(file)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var data []byte
	for i, frame := range g.samples {
		data = slices.Grow(data[:0], int(frame.size))[:frame.size]
		if _, err := f.ReadAt(data, frame.offset); err != nil && err != io.EOF {
			return err
		}
		if s.picture == nil {
			err = checkAAC(frame, data, s.channels, isLast && i+1 == len(g.samples))
		} else {
			err = s.checkPicture(frame, data)
		}
		if err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
	}
	if s.picture != nil {
		return g.checkOrder(s.picture)
	}
	return nil
}

// checkAAC checks a frame of so many channels. All but the last of a rendition have their full length.
func checkAAC(frame sample, data []byte, channels int, isLast bool) error {
	const single, pair, stream, fill = 0, 1, 4, 6 // elements; of 5.1, the channel in the middle is the first
	first := map[int]byte{stereo: pair, surround: single}[channels]
	switch {
	case len(data) == 0 || !slices.Contains([]byte{first, stream, fill}, data[0]>>5):
		return fmt.Errorf("it is not a frame of %d channels", channels)
	case frame.duration != aacFrame && !(isLast && frame.duration > 0 && frame.duration < aacFrame):
		return fmt.Errorf("it lasts %d samples instead of %d", frame.duration, int(aacFrame))
	case frame.pts != frame.dts || !frame.isKey:
		return fmt.Errorf("it depends on other frames")
	}
	return nil
}

// checkOrder checks the times of the frames of a segment, which are in decoding order. The first one may be at another
// time; see segmentStarts.
func (g *segment) checkOrder(p *pictureParameters) error {
	reordered := p.reordered
	if reordered < 0 {
		reordered = maxReordered
	}
	times := g.timesAfterFirst()
	if !isIncreasing(times) {
		return fmt.Errorf("two of its frames are shown at the same time")
	}
	for i, frame := range g.samples {
		shown, _ := slices.BinarySearch(times, frame.pts)
		switch shown++; {
		case frame.duration <= 0 && i > 0:
			return fmt.Errorf("frame %d has no duration", i)
		case frame.pts < frame.dts:
			return fmt.Errorf("frame %d is shown before it is decoded", i)
		case i-shown > reordered:
			return fmt.Errorf("frame %d is decoded after %d that are shown later; its parameters allow %d", i, i-shown, reordered)
		case i > reordered && frame.dts < times[i-reordered-1]-videoTimescale/1000:
			return fmt.Errorf("frame %d is decoded %.3f s before it is shown", i, float64(frame.pts-frame.dts)/videoTimescale)
		}
	}
	return nil
}

// timesAfterFirst are the times of all frames but the first one, which a decoder needs before it shows others.
func (g *segment) timesAfterFirst() []int64 {
	var times []int64
	for _, frame := range g.samples[1:] {
		times = append(times, frame.pts)
	}
	slices.Sort(times)
	return times
}
