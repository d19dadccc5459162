package media

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/Eyevinn/mp4ff/mp4"
)

// renditionFiles is what a rendition's files contain.
type renditionFiles struct {
	codecs        string
	picture       *pictureParameters // nil for audio
	parameters    [][]byte           // the codec's parameter sets, as in its configuration record
	width, height int
	channels      int
	sampleRate    int
	timescale     int64
	editStart     int64 // ticks before the presentation starts
	target        int   // target duration
	init          string
	trak          *mp4.TrakBox // of init
	segments      []segment
	runs          []FrameRun // when they are shown
	frames        int64
	bytes         int64
}

// segment is one segment file. Times are in ticks of the timescale.
type segment struct {
	name          string
	listedSeconds float64 // duration in the playlist
	// start and length say when it is presented: start counts from the first
	// frame of the rendition, and length reaches to the next segment. Decoding
	// times differ from that by whole frames, of which the first may be long.
	start, length         int64
	firstDTS, decodeTicks int64
	frames                int64
	keyframes             []int64 // decoding times
	firstPTS, lastPTS     int64   // smallest and largest presentation time
	bytes                 int64
	moofStart, keyEnd     int64 // where in the file the first fragment begins, and its first picture ends
	startsWithKeyframe    bool
	lastDuration          int64 // of the last frame
	maxStep, lastStep     int64 // longest time between two frames of the segment, and that between the last two
	// times are the presentation times in order, and samples all frames in decoding order. Only readSegment
	// sets them.
	times   []int64
	samples []sample
}

// sample is a frame: when it is decoded and shown, and where it is in the file.
type sample struct {
	dts, pts, duration int64
	isKey              bool
	offset, size       int64
}

func (s *renditionFiles) seconds(ticks int64) float64 { return float64(ticks) / float64(s.timescale) }

func (s *renditionFiles) duration() float64 {
	sum := int64(0)
	for _, g := range s.segments {
		sum += g.length
	}
	return s.seconds(sum)
}

// frameRate is the average between the first and the last frame, because the last
// duration is often a guess. lead is how much longer the first frame is shown. A
// rate close to a standard one is rounded to it.
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

// renditionReader reads the initialization segment and all segments in sequence.
// It opens each file when it reaches it.
type renditionReader struct {
	open  func(name string) (io.ReadCloser, error)
	names []string // remaining files
	file  io.ReadCloser
}

func openRendition(dir string, r Rendition) (*renditionReader, error) {
	return newRenditionReader(r, openIn(filepath.Join(dir, filepath.Dir(filepath.FromSlash(r.Playlist)))))
}

func openIn(dir string) func(name string) (io.ReadCloser, error) {
	return func(name string) (io.ReadCloser, error) { return os.Open(filepath.Join(dir, name)) }
}

// newRenditionReader reads the playlist. Open opens a file of the rendition's directory.
func newRenditionReader(r Rendition, open func(name string) (io.ReadCloser, error)) (*renditionReader, error) {
	f, err := open(path.Base(r.Playlist))
	if err != nil {
		return nil, fmt.Errorf("read playlist: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read playlist: %w", err)
	}
	p, err := parsePlaylist(string(text))
	if err != nil {
		return nil, fmt.Errorf("playlist %s: %w", r.Playlist, err)
	}
	reader := &renditionReader{open: open, names: []string{p.init}}
	for _, entry := range p.segments {
		reader.names = append(reader.names, entry.name)
	}
	return reader, nil
}

// Read reads the initialization segment and then every segment, in order.
func (r *renditionReader) Read(b []byte) (n int, err error) {
	for {
		if r.file == nil {
			if len(r.names) == 0 {
				return 0, io.EOF
			}
			if r.file, err = r.open(r.names[0]); err != nil {
				r.file = nil
				return 0, err
			}
			r.names = r.names[1:]
		}
		if n, err = r.file.Read(b); n > 0 || err != io.EOF {
			return n, err
		}
		if err := r.Close(); err != nil {
			return 0, err
		}
	}
}

// Close closes the current file.
func (r *renditionReader) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}

// inspect reads a rendition's playlist, initialization segment and segments,
// without decoding media.
func (t Tools) inspect(ctx context.Context, dir, playlist string) (*renditionFiles, error) {
	p, size, err := readPlaylist(dir, playlist)
	if err != nil {
		return nil, err
	}
	s, err := t.readListed(ctx, filepath.Dir(filepath.Join(dir, filepath.FromSlash(playlist))), p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", playlist, err)
	}
	s.bytes += size
	return s, nil
}

// readListed reads the files that a playlist names, in its directory.
func (t Tools) readListed(ctx context.Context, dir string, p *playlist) (*renditionFiles, error) {
	s := &renditionFiles{target: p.target, init: p.init}
	if err := s.readInit(filepath.Join(dir, p.init)); err != nil {
		return nil, fmt.Errorf("initialization segment: %w", err)
	}
	var runs runBuilder
	for _, entry := range p.segments {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		t.step()
		g, err := readSegment(filepath.Join(dir, entry.name))
		if err != nil {
			return nil, fmt.Errorf("segment %s: %w", entry.name, err)
		}
		g.name, g.listedSeconds = entry.name, entry.duration
		s.segments = append(s.segments, g)
		for _, pts := range append([]int64{g.samples[0].pts}, g.timesAfterFirst()...) {
			runs.add(pts - s.segments[0].firstPTS)
		}
		last := &s.segments[len(s.segments)-1]
		last.times, last.samples = nil, nil
		s.frames += g.frames
		s.bytes += g.bytes
	}
	s.runs = runs.runs()
	s.setShownTimes()
	return s, nil
}

func readPlaylist(dir, name string) (*playlist, int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, 0, fmt.Errorf("read playlist: %w", err)
	}
	p, err := parsePlaylist(string(text))
	if err != nil {
		return nil, 0, fmt.Errorf("playlist %s: %w", name, err)
	}
	return p, int64(len(text)), nil
}

// setShownTimes sets when each segment is presented.
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

func readSegment(file string) (segment, error) {
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
			if err := g.add(frag); err != nil {
				return segment{}, err
			}
		}
	}
	if g.frames == 0 {
		return segment{}, errEmptyRendition
	}
	slices.Sort(g.times)
	for i, pts := range g.times[1:] {
		g.lastStep = pts - g.times[i]
		g.maxStep = max(g.maxStep, g.lastStep)
	}
	return g, nil
}

func (g *segment) add(frag *mp4.Fragment) error {
	if frag.Moof == nil || frag.Mdat == nil || len(frag.Moof.Trafs) != 1 ||
		frag.Moof.Traf.Tfdt == nil || frag.Moof.Traf.Tfhd == nil {
		return fmt.Errorf("a fragment is incomplete")
	}
	traf := frag.Moof.Traf
	if traf.Tfhd.TrackID != trackID || traf.Tfhd.HasBaseDataOffset() || traf.Tfhd.HasSampleDescriptionIndex() {
		return fmt.Errorf("a fragment is of another track, or its data is elsewhere")
	}
	data := int64(frag.Mdat.PayloadAbsoluteOffset())
	dts := int64(traf.Tfdt.BaseMediaDecodeTime())
	if g.frames == 0 {
		g.firstDTS, g.firstPTS = dts, dts+1<<40
	} else if dts != g.firstDTS+g.decodeTicks {
		return fmt.Errorf("there is a gap between its fragments")
	}
	var payload uint64
	for _, trun := range traf.Truns {
		trun.AddSampleDefaultValues(traf.Tfhd, nil)
		if at := int64(frag.Moof.StartPos) + int64(trun.DataOffset); at != data+int64(payload) {
			return fmt.Errorf("a run of frames is said to be at byte %d instead of %d", at, data+int64(payload))
		}
		for _, one := range trun.Samples {
			key := one.Flags&mp4.NonSyncSampleFlags == 0
			if g.frames == 0 {
				g.startsWithKeyframe = key
				g.moofStart, g.keyEnd = int64(frag.Moof.StartPos), data+int64(one.Size)
			}
			if key {
				g.keyframes = append(g.keyframes, dts)
			}
			pts := dts + int64(one.CompositionTimeOffset)
			g.firstPTS, g.lastPTS = min(g.firstPTS, pts), max(g.lastPTS, pts)
			g.lastDuration = int64(one.Dur)
			g.times = append(g.times, pts)
			g.samples = append(g.samples, sample{dts, pts, g.lastDuration, key, data + int64(payload), int64(one.Size)})
			g.frames++
			dts += g.lastDuration
			payload += uint64(one.Size)
		}
	}
	g.decodeTicks = dts - g.firstDTS
	if payload != uint64(frag.Mdat.DataLength()) && payload != frag.Mdat.GetLazyDataSize() {
		return fmt.Errorf("the amount of data differs from its index")
	}
	return nil
}
