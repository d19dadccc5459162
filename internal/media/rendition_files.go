package media

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/Eyevinn/mp4ff/mp4"
)

// stream is one rendition as its files show it.
type renditionFiles struct {
	codecs        string
	width, height int
	channels      int
	sampleRate    int // audio samples per second
	timescale     int64
	editStart     int64 // ticks before what is shown first
	target        int
	init          string
	segments      []segment
	frames        int64
	bytes         int64
}

// segment is one file of a rendition. Times are in ticks of the timescale.
type segment struct {
	name          string
	listedSeconds float64 // seconds, as the playlist says
	// start and length are when it is shown: start counts from the rendition's
	// first frame, and length reaches to the next segment's. Decoding times
	// differ from that by whole frames, of which the first may last long.
	start, length int64
	// decoded and decodes are its first decoding time and how long it takes.
	firstDTS, decodeTicks int64
	frames                int64
	keyframes             []int64 // decoding times of keyframes
	firstPTS, lastPTS     int64   // smallest and largest presentation time
	bytes                 int64
	startsWithKeyframe    bool  // the first frame is a keyframe
	lastDuration          int64 // duration of the last frame
}

func (s *renditionFiles) seconds(ticks int64) float64 { return float64(ticks) / float64(s.timescale) }

func (s *renditionFiles) duration() float64 {
	sum := int64(0)
	for _, g := range s.segments {
		sum += g.length
	}
	return s.seconds(sum)
}

// frameRate is the average between the first and the last frame; how long the
// last one lasts is often a guess. The first one is held for lead seconds more
// than others. A rate that is nearly a usual one is that.
func (s *renditionFiles) frameRate(lead float64) float64 {
	n := len(s.segments)
	length := s.duration() - s.seconds(s.segments[n-1].lastDuration) - lead
	if s.frames < 2 || length <= 0 {
		return float64(s.frames) / s.duration()
	}
	rate := float64(s.frames-1) / length
	if usual := standardRate(rate); math.Abs(rate-usual) < 0.0005*usual {
		return usual
	}
	return rate
}

// renditionReader reads header and segments one after the other, each opened when it is its
// turn.
type renditionReader struct {
	dir   string
	names []string // that are still to come
	open  *os.File
}

func openRendition(dir string, r Rendition) (*renditionReader, error) {
	list := filepath.Join(dir, filepath.FromSlash(r.Playlist))
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, fmt.Errorf("read playlist: %w", err)
	}
	p, err := parsePlaylist(string(text))
	if err != nil {
		return nil, fmt.Errorf("playlist %s: %w", r.Playlist, err)
	}
	all := &renditionReader{dir: filepath.Dir(list), names: []string{p.init}}
	for _, l := range p.segments {
		all.names = append(all.names, l.name)
	}
	return all, nil
}

func (r *renditionReader) Read(b []byte) (n int, err error) {
	for {
		if r.open == nil {
			if len(r.names) == 0 {
				return 0, io.EOF
			}
			if r.open, err = os.Open(filepath.Join(r.dir, r.names[0])); err != nil {
				return 0, err
			}
			r.names = r.names[1:]
		}
		if n, err = r.open.Read(b); n > 0 || err != io.EOF {
			return n, err
		}
		if err := r.Close(); err != nil {
			return 0, err
		}
	}
}

// Close is called once nobody reads any more.
func (r *renditionReader) Close() error {
	if r.open == nil {
		return nil
	}
	f := r.open
	r.open = nil
	return f.Close()
}

// inspect reads a rendition's playlist, header and all its segments, without
// decoding pictures or sound.
func (t Tools) inspect(ctx context.Context, dir, list string) (*renditionFiles, error) {
	folder := filepath.Dir(filepath.Join(dir, filepath.FromSlash(list)))
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(list)))
	if err != nil {
		return nil, fmt.Errorf("read playlist: %w", err)
	}
	p, err := parsePlaylist(string(text))
	if err != nil {
		return nil, fmt.Errorf("playlist %s: %w", list, err)
	}
	s := &renditionFiles{target: p.target, init: p.init, bytes: int64(len(text))}
	trex, err := s.readInit(filepath.Join(folder, p.init))
	if err != nil {
		return nil, fmt.Errorf("header of %s: %w", list, err)
	}
	for _, l := range p.segments {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		t.step()
		g, err := readSegment(filepath.Join(folder, l.name), trex)
		if err != nil {
			return nil, fmt.Errorf("segment %s of %s: %w", l.name, list, err)
		}
		g.name, g.listedSeconds = l.name, l.duration
		s.segments = append(s.segments, g)
		s.frames += g.frames
		s.bytes += g.bytes
	}
	s.setShownTimes()
	return s, nil
}

// arrange finds out when each segment is shown.
func (s *renditionFiles) setShownTimes() {
	for i := range s.segments {
		g := &s.segments[i]
		g.start = g.firstPTS - s.segments[0].firstPTS
		g.length = g.lastPTS + g.lastDuration - g.firstPTS
		if i > 0 {
			s.segments[i-1].length = g.firstPTS - s.segments[i-1].firstPTS
		}
	}
}

func (s *renditionFiles) readInit(file string) (*mp4.TrexBox, error) {
	f, size, err := openComplete(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s.bytes += size
	parsed, err := decodeMP4(f)
	if err != nil {
		return nil, err
	}
	if parsed.Init == nil || parsed.Init.Moov == nil || parsed.Init.Moov.Mvex == nil || len(parsed.Init.Moov.Traks) != 1 {
		return nil, fmt.Errorf("it is not one of a single fragmented track")
	}
	trak := parsed.Init.Moov.Trak
	if trak.Mdia == nil || trak.Mdia.Mdhd == nil || trak.Mdia.Minf == nil || trak.Mdia.Minf.Stbl == nil || trak.Mdia.Minf.Stbl.Stsd == nil {
		return nil, fmt.Errorf("it describes no samples")
	}
	if s.timescale = int64(trak.Mdia.Mdhd.Timescale); s.timescale == 0 {
		return nil, fmt.Errorf("its clock stands still")
	}
	if e := trak.Edts; e != nil && len(e.Elst) == 1 && len(e.Elst[0].Entries) == 1 {
		s.editStart = e.Elst[0].Entries[0].MediaTime
	}
	return parsed.Init.Moov.Mvex.Trex, s.setCodec(trak.Mdia.Minf.Stbl.Stsd)
}

// describe builds the codec string from the decoder's configuration.
func (s *renditionFiles) setCodec(stsd *mp4.StsdBox) error {
	switch {
	case stsd.AvcX != nil && stsd.AvcX.AvcC != nil:
		c := stsd.AvcX.AvcC
		s.codecs = fmt.Sprintf("avc1.%02x%02x%02x", c.AVCProfileIndication, c.ProfileCompatibility, c.AVCLevelIndication)
		s.width, s.height = int(stsd.AvcX.Width), int(stsd.AvcX.Height)
	case stsd.Mp4a != nil:
		s.codecs = "mp4a.40.2"
		s.channels, s.sampleRate = int(stsd.Mp4a.ChannelCount), int(stsd.Mp4a.SampleRate)
	default:
		return fmt.Errorf("it is neither H.264 nor AAC")
	}
	return nil
}

func readSegment(file string, trex *mp4.TrexBox) (segment, error) {
	f, size, err := openComplete(file)
	if err != nil {
		return segment{}, err
	}
	defer f.Close()
	parsed, err := decodeMP4(f, mp4.WithDecodeMode(mp4.DecModeLazyMdat))
	if err != nil {
		return segment{}, err
	}
	g := segment{bytes: size}
	for _, s := range parsed.Segments {
		for _, frag := range s.Fragments {
			if err := g.add(frag, trex); err != nil {
				return segment{}, err
			}
		}
	}
	if g.frames == 0 {
		return segment{}, errEmptyRendition
	}
	return g, nil
}

func (g *segment) add(frag *mp4.Fragment, trex *mp4.TrexBox) error {
	if frag.Moof == nil || frag.Mdat == nil || len(frag.Moof.Trafs) != 1 || frag.Moof.Traf.Tfdt == nil || frag.Moof.Traf.Tfhd == nil {
		return fmt.Errorf("a fragment lacks a part")
	}
	traf := frag.Moof.Traf
	at := int64(traf.Tfdt.BaseMediaDecodeTime())
	if g.frames == 0 {
		g.firstDTS, g.firstPTS = at, at+1<<40
	} else if at != g.firstDTS+g.decodeTicks {
		return fmt.Errorf("there is a hole between its fragments")
	}
	var payload uint64
	for _, trun := range traf.Truns {
		trun.AddSampleDefaultValues(traf.Tfhd, trex)
		for _, sample := range trun.Samples {
			key := sample.Flags&mp4.NonSyncSampleFlags == 0
			if g.frames == 0 {
				g.startsWithKeyframe = key
			}
			if key {
				g.keyframes = append(g.keyframes, at)
			}
			g.firstPTS = min(g.firstPTS, at+int64(sample.CompositionTimeOffset))
			g.lastPTS = max(g.lastPTS, at+int64(sample.CompositionTimeOffset))
			g.frames++
			g.lastDuration = int64(sample.Dur)
			at += g.lastDuration
			payload += uint64(sample.Size)
		}
	}
	g.decodeTicks = at - g.firstDTS
	if payload != uint64(frag.Mdat.DataLength()) && payload != frag.Mdat.GetLazyDataSize() {
		return fmt.Errorf("it holds another amount of data than it says")
	}
	return nil
}

// openWhole opens an MP4 file whose boxes fill it exactly. A file that was cut
// short, or has a hole where its end was to be, does not pass.
func openComplete(file string) (*os.File, int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	size, err := checkBoxes(f)
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

func checkBoxes(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := st.Size()
	if size == 0 {
		return 0, fmt.Errorf("it is empty")
	}
	var head [16]byte
	for at := int64(0); at < size; {
		if _, err := f.ReadAt(head[:8], at); err != nil {
			return 0, fmt.Errorf("it is cut short")
		}
		length := int64(binary.BigEndian.Uint32(head[:4]))
		if length == 1 {
			if _, err := f.ReadAt(head[:], at); err != nil {
				return 0, fmt.Errorf("it is cut short")
			}
			length = int64(binary.BigEndian.Uint64(head[8:]))
		}
		if length < 8 || length > size-at {
			return 0, fmt.Errorf("its box %q does not end where it should", strings.ToValidUTF8(string(head[4:8]), "?"))
		}
		at += length
	}
	_, err = f.Seek(0, io.SeekStart)
	return size, err
}
