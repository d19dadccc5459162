package media

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/Eyevinn/mp4ff/mp4"
)

const (
	// encoderDelay is the silence that ffmpeg's AAC encoder puts in front, in
	// samples.
	encoderDelay = 1024
	// minTailSeconds is the shortest last segment. Players wait forever at the
	// start of one that is no longer than a frame or two.
	minTailSeconds = 0.5
)

// encoder is an initialization segment or a media segment.
type encoder interface{ Encode(io.Writer) error }

// rewriteMP4 replaces a file by what change makes of it.
func rewriteMP4(file string, change func(*mp4.File) (encoder, error)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := decodeMP4(bytes.NewReader(text))
	if err != nil {
		return err
	}
	changed, err := change(parsed)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := changed.Encode(&out); err != nil {
		return err
	}
	return writeFile(file, out.Bytes())
}

// decodeMP4 is mp4.DecodeFile without its panics on damaged files, such as
// blocks of zeros.
func decodeMP4(r io.Reader, options ...mp4.Option) (f *mp4.File, err error) {
	defer func() {
		if v := recover(); v != nil {
			f, err = nil, fmt.Errorf("it is damaged: %v", v)
		}
	}()
	return mp4.DecodeFile(r, options...)
}

// fixSegments extends the last frame to end, in seconds, unless end is 0; merges
// a short last segment into the one before it; and sets the brands of all
// segments.
func (s *renditionFiles) fixSegments(dir string, end float64) error {
	if err := s.extendLastFrame(dir, end); err != nil {
		return err
	}
	if err := s.mergeShortTail(dir); err != nil {
		return err
	}
	for _, g := range s.segments {
		if err := brandSegment(filepath.Join(dir, g.name)); err != nil {
			return fmt.Errorf("set brands of segment %s: %w", g.name, err)
		}
	}
	return nil
}

// extendLastFrame sets the last frame's duration. ffmpeg does not know it and writes the average. ffmpeg 7 writes 0 for
// a frame that is alone in its fragment: then it lasts as long as the one before it.
func (s *renditionFiles) extendLastFrame(dir string, end float64) error {
	g := &s.segments[len(s.segments)-1]
	duration := int64(math.Round(end*float64(s.timescale))) - (g.lastPTS - s.segments[0].firstPTS)
	if end == 0 && g.lastDuration == 0 {
		duration = s.lastStep()
	}
	if duration <= 0 || duration == g.lastDuration {
		return nil
	}
	if err := setLastDuration(filepath.Join(dir, g.name), uint32(duration)); err != nil {
		return fmt.Errorf("extend the last frame of %s: %w", g.name, err)
	}
	g.length += duration - g.lastDuration
	g.lastDuration = duration
	return nil
}

// lastStep is the time between the last two frames, in ticks; 0 if there is one frame.
func (s *renditionFiles) lastStep() int64 {
	last := len(s.segments) - 1
	if g := s.segments[last]; g.frames > 1 || last == 0 {
		return g.lastStep
	}
	return s.segments[last].lastPTS - s.segments[last-1].lastPTS
}

func setLastDuration(file string, ticks uint32) error {
	return rewriteMP4(file, func(parsed *mp4.File) (encoder, error) {
		if len(parsed.Segments) != 1 || len(parsed.Segments[0].Fragments) == 0 {
			return nil, fmt.Errorf("it is not one segment")
		}
		fragments := parsed.Segments[0].Fragments
		last := fragments[len(fragments)-1]
		trun := last.Moof.Traf.Trun
		trun.AddSampleDefaultValues(last.Moof.Traf.Tfhd, nil)
		trun.Samples[len(trun.Samples)-1].Dur = ticks
		trun.Flags |= mp4.TrunSampleDurationPresentFlag
		last.SetTrunDataOffsets()
		return parsed.Segments[0], nil
	})
}

// mergeShortTail appends a last segment that is too short to the one before it.
func (s *renditionFiles) mergeShortTail(dir string) error {
	last := len(s.segments) - 1
	if last < 1 || s.seconds(s.segments[last].length) >= minTailSeconds {
		return nil
	}
	tail := filepath.Join(dir, s.segments[last].name)
	if err := appendFragments(filepath.Join(dir, s.segments[last-1].name), tail); err != nil {
		return fmt.Errorf("merge segment %s: %w", s.segments[last].name, err)
	}
	s.segments[last-1].length += s.segments[last].length
	s.segments = s.segments[:last]
	return os.Remove(tail)
}

// appendFragments appends the fragments of one segment file to another. Their
// offsets are relative to each fragment, so no byte of them changes.
func appendFragments(to, from string) (err error) {
	in, size, err := openComplete(from)
	if err != nil {
		return err
	}
	defer in.Close()
	start, err := firstFragmentOffset(in)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, io.NewSectionReader(in, start, size-start)); err != nil {
		return spaceError(err)
	}
	return nil
}

// segmentBrands are those of DASH media segments and of CMAF segments and
// fragments.
const segmentBrands = "msdh" + "cmfs" + "cmff"

// brandSegment overwrites the boxes before the first fragment with a new styp
// box. ffmpeg writes a styp without CMAF's brands there, and a sidx, which no
// playlist uses and which is wrong after mergeShortTail. A free box fills the
// rest, so that the fragments stay in place.
func brandSegment(file string) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	space, err := firstFragmentOffset(f)
	if err != nil {
		return err
	}
	head := newBox("styp", segmentBrands[:4]+"\x00\x00\x00\x00"+segmentBrands)
	rest := int(space) - len(head)
	if rest < 8 {
		return fmt.Errorf("there are %d bytes before its first fragment; %d are needed", space, len(head)+8)
	}
	head = append(head, newBox("free", string(make([]byte, rest-8)))...)
	if _, err := f.WriteAt(head, 0); err != nil {
		return spaceError(err)
	}
	return nil
}
