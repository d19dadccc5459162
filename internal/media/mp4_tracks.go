package media

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/Eyevinn/mp4ff/mp4"
)

// movieTimescale is a multiple of the clocks of picture and sound, so that durations are exact.
const movieTimescale = 2 * videoTimescale

// mp4Track is a rendition, or a segment of one, as a track of an [MP4File]. Equal durations and delays of packets in a row are one
// entry with a count.
type mp4Track struct {
	*renditionFiles // of which the segments are those of the track
	dir             string
	names           []string // of the files
	start, shown    int64    // when it is shown in the rendition, and how long
	chunks          []mp4Chunk

	durationCounts, durations []uint32
	delayCounts               []uint32
	delays                    []int32
	sizes, keys               []uint32
}

// mp4Chunk is a run of packets that are side by side in a segment, and remain so.
type mp4Chunk struct {
	track        *mp4Track
	seconds      float64 // when it is decoded
	file         string
	offset, size int64 // in file
	packets      uint32
}

func (t Tools) mp4Track(ctx context.Context, dir string, r Rendition, f MP4File) (*mp4Track, error) {
	s, err := t.inspect(ctx, dir, r.Playlist)
	if err != nil {
		return nil, err
	}
	k := &mp4Track{renditionFiles: s, dir: filepath.Join(dir, filepath.FromSlash(path.Dir(r.Playlist)))}
	if f.isClip {
		first := s.segmentAt(f.clipAt)
		k.segments, k.start, k.editStart = []segment{first}, first.start, first.firstPTS-first.firstDTS
	}
	k.names = []string{k.init}
	for i, g := range k.segments {
		k.names = append(k.names, g.name)
		if err := k.addSegment(filepath.Join(k.dir, g.name), i+1 == len(k.segments)); err != nil {
			return nil, err
		}
		t.step()
	}
	return k, k.describe()
}

// segmentAt returns the segment that is shown at a time in seconds, or the last one.
func (s *renditionFiles) segmentAt(at float64) (found segment) {
	for i, g := range s.segments {
		if i == 0 || s.seconds(g.start) <= at {
			found = g
		}
	}
	return found
}

func (k *mp4Track) addSegment(file string, isLast bool) error {
	g, err := readSegment(file)
	if err != nil {
		return err
	}
	end, zero := int64(-1), k.segments[0].firstDTS
	k.shown = g.lastPTS + g.lastDuration - k.editStart - zero
	if last := &g.samples[len(g.samples)-1]; isLast { // players stop when the last packet ends, which may be shown before others
		last.duration = max(last.duration, zero+k.shown-last.dts)
	}
	for _, s := range g.samples {
		if s.offset != end {
			k.chunks = append(k.chunks, mp4Chunk{track: k, seconds: k.seconds(s.dts - zero), file: file, offset: s.offset})
		}
		end = s.offset + s.size
		c := &k.chunks[len(k.chunks)-1]
		c.size, c.packets = c.size+s.size, c.packets+1
		k.durationCounts, k.durations = appendRun(k.durationCounts, k.durations, uint32(s.duration))
		k.delayCounts, k.delays = appendRun(k.delayCounts, k.delays, int32(s.pts-s.dts))
		k.sizes = append(k.sizes, uint32(s.size))
		if s.isKey {
			k.keys = append(k.keys, uint32(len(k.sizes)))
		}
	}
	return nil
}

func appendRun[V comparable](counts []uint32, values []V, v V) ([]uint32, []V) {
	if n := len(values); n == 0 || values[n-1] != v {
		counts, values = append(counts, 0), append(values, v)
	}
	counts[len(counts)-1]++
	return counts, values
}

// describe makes the description of the track of that of the rendition. Durations and offsets have 64 bits.
func (k *mp4Track) describe() error {
	delays, chunks := &mp4.CttsBox{}, &mp4.StscBox{}
	err := delays.AddSampleCountsAndOffset(k.delayCounts, k.delays)
	for i, c := range k.chunks {
		err = errors.Join(err, chunks.AddEntry(uint32(i+1), c.packets, 1))
	}
	stbl := k.trak.Mdia.Minf.Stbl
	stbl.Children = []mp4.Box{stbl.Stsd}
	for _, box := range []mp4.Box{
		&mp4.SttsBox{SampleCount: k.durationCounts, SampleTimeDelta: k.durations}, delays, chunks,
		&mp4.StszBox{SampleNumber: uint32(len(k.sizes)), SampleSize: k.sizes}, &mp4.Co64Box{ChunkOffset: make([]uint64, len(k.chunks))},
	} {
		stbl.AddChild(box)
	}
	if k.picture != nil {
		stbl.AddChild(&mp4.StssBox{SampleNumber: k.keys})
	}
	mdhd, tkhd, edits := k.trak.Mdia.Mdhd, k.trak.Tkhd, k.trak.Edts.Elst[0]
	for i, n := range k.durationCounts {
		mdhd.Duration += uint64(n) * uint64(k.durations[i])
	}
	tkhd.Duration = uint64(k.shown * movieTimescale / k.timescale)
	edits.Entries = []mp4.ElstEntry{{SegmentDuration: tkhd.Duration, MediaTime: k.editStart, MediaRateInteger: 1}}
	mdhd.Version, tkhd.Version, edits.Version = 1, 1, 1
	return err
}

// writeTracks writes a file. The chunks of the tracks take turns, the sound first: it is small.
func (t Tools) writeTracks(ctx context.Context, file string, tracks []*mp4Track) (err error) {
	moov, mvhd := mp4.NewMoovBox(), mp4.CreateMvhd()
	mvhd.Timescale, mvhd.Version = movieTimescale, 1
	moov.AddChild(mvhd)
	var chunks []mp4Chunk
	for i, k := range tracks {
		moov.AddChild(k.trak)
		k.trak.Tkhd.TrackID, mvhd.NextTrackID = uint32(i+1), uint32(i+2)
		mvhd.Duration = max(mvhd.Duration, k.trak.Tkhd.Duration)
		chunks = slices.Concat(k.chunks, chunks)
	}
	slices.SortStableFunc(chunks, func(a, b mp4Chunk) int { return cmp.Compare(a.seconds, b.seconds) })
	ftyp := mp4.NewFtyp("isom", 512, []string{"isom", "iso2", "avc1", "mp41"})
	const mdatHead = 16 // its size has 64 bits
	start := ftyp.Size() + moov.Size() + mdatHead
	end, written := start, make(map[*mp4Track]int)
	for _, c := range chunks {
		c.track.trak.Mdia.Minf.Stbl.Co64.ChunkOffset[written[c.track]] = end
		written[c.track]++
		end += uint64(c.size)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := errors.Join(ftyp.Encode(out), moov.Encode(out)); err != nil {
		return err
	}
	if _, err := out.Write(binary.BigEndian.AppendUint64([]byte("\x00\x00\x00\x01mdat"), mdatHead+end-start)); err != nil {
		return err
	}
	for _, c := range chunks {
		if err = cmp.Or(context.Cause(ctx), c.copyTo(out)); err != nil {
			break
		}
		t.step()
	}
	return err
}

func (c mp4Chunk) copyTo(out io.Writer) error {
	in, err := os.Open(c.file)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, io.NewSectionReader(in, c.offset, c.size))
	return err
}
