package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/Eyevinn/mp4ff/mp4"
)

// minTail is the shortest last segment, in seconds. Players wait for ever at
// the start of one that lasts no longer than a frame or two.
const minTailSeconds = 0.5

// mendSegments makes the last frame last until until, in seconds, if that is not 0,
// joins a short tail to the segment before it, and gives all segments their brands.
func (s *renditionFiles) fixSegments(folder string, until float64) error {
	if err := s.extendLastFrame(folder, until); err != nil {
		return err
	}
	if err := s.mergeShortTail(folder); err != nil {
		return err
	}
	for _, g := range s.segments {
		if err := brandSegment(filepath.Join(folder, g.name)); err != nil {
			return fmt.Errorf("brand segment %s: %w", g.name, err)
		}
	}
	return nil
}

// holdLast gives the last frame the duration it is to have. ffmpeg does not know
// it, and takes that of an average frame.
func (s *renditionFiles) extendLastFrame(folder string, until float64) error {
	g := &s.segments[len(s.segments)-1]
	length := int64(math.Round(until*float64(s.timescale))) - (g.lastPTS - s.segments[0].firstPTS)
	if until == 0 || length <= 0 || length == g.lastDuration {
		return nil
	}
	if err := setLastDuration(filepath.Join(folder, g.name), uint32(length)); err != nil {
		return fmt.Errorf("hold the last frame of %s: %w", g.name, err)
	}
	g.length += length - g.lastDuration
	g.lastDuration = length
	return nil
}

func setLastDuration(file string, ticks uint32) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := decodeMP4(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if len(parsed.Segments) != 1 || len(parsed.Segments[0].Fragments) == 0 {
		return fmt.Errorf("it is not one segment")
	}
	frag := parsed.Segments[0].Fragments[len(parsed.Segments[0].Fragments)-1]
	traf := frag.Moof.Traf
	trun := traf.Trun
	trun.AddSampleDefaultValues(traf.Tfhd, nil)
	trun.Samples[len(trun.Samples)-1].Dur = ticks
	trun.Flags |= mp4.TrunSampleDurationPresentFlag
	frag.SetTrunDataOffsets()
	var out bytes.Buffer
	if err := parsed.Segments[0].Encode(&out); err != nil {
		return err
	}
	return writeFile(file, out.Bytes())
}

// joinTail appends a last segment that is too short to the one before it. A
// rendition of one segment keeps it.
func (s *renditionFiles) mergeShortTail(folder string) error {
	last := len(s.segments) - 1
	if last < 1 || s.seconds(s.segments[last].length) >= minTailSeconds {
		return nil
	}
	tail := filepath.Join(folder, s.segments[last].name)
	if err := appendFragments(filepath.Join(folder, s.segments[last-1].name), tail); err != nil {
		return fmt.Errorf("join segment %s: %w", s.segments[last].name, err)
	}
	s.segments[last-1].length += s.segments[last].length
	s.segments = s.segments[:last]
	return os.Remove(tail)
}

// appendFragments appends the fragments of one segment file to another. Their
// offsets count from the fragment's own beginning, so no byte of them changes.
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

// fragmentsAt is where the first fragment of a segment file begins.
func firstFragmentOffset(f io.ReaderAt) (int64, error) {
	var head [8]byte
	for at := int64(0); ; {
		if _, err := f.ReadAt(head[:], at); err != nil {
			return 0, fmt.Errorf("find its first fragment: %w", err)
		}
		if string(head[4:]) == "moof" {
			return at, nil
		}
		length := int64(binary.BigEndian.Uint32(head[:4]))
		if length < 8 {
			return 0, fmt.Errorf("its box %q has no length", head[4:])
		}
		at += length
	}
}

// segmentBrands are those of DASH media segments and of CMAF segments and
// fragments.
var segmentBrands = [...]string{"msdh", "cmfs", "cmff"}

// brandSegment writes the brands over the boxes in front of the first fragment,
// which are ffmpeg's styp, without CMAF's brands, and a sidx, which no playlist
// refers to and which is wrong once a tail was appended. The place that is left
// becomes a free box, so that the fragments stay where they are.
func brandSegment(file string) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	room, err := firstFragmentOffset(f)
	if err != nil {
		return err
	}
	head := box("styp", segmentBrands[0]+"\x00\x00\x00\x00")
	for _, brand := range segmentBrands {
		head = append(head, brand...)
	}
	binary.BigEndian.PutUint32(head, uint32(len(head)))
	left := int(room) - len(head)
	if left < 8 {
		return fmt.Errorf("there are %d bytes before its first fragment; %d are needed", room, len(head)+8)
	}
	head = append(head, box("free", string(make([]byte, left-8)))...)
	if _, err := f.WriteAt(head, 0); err != nil {
		return spaceError(err)
	}
	return nil
}

func box(kind, content string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(content)))
	return append(append(b, kind...), content...)
}
