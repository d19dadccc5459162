package media

import (
	"bytes"
	"io"
	"math"
	"strconv"

	"github.com/cuelight/cuelight/internal/childproc"
)

// trackTiming measures one stream from its packets.
type trackTiming struct {
	packets     int64 // to show
	hidden      int64 // only to decode, before an edit list's start
	keyframes   int64
	first       float64 // smallest timestamp
	end         float64 // largest timestamp plus duration
	maxGap      float64
	minGap      float64
	skippedTime float64 // sum of forward jumps of the clock
	repeated    int64   // packets with the timestamp of another one
	runs        []clockRun

	jumpsAllowed bool    // timestamps may jump in this container
	offset       float64 // added to timestamps to undo jumps
	nextDTS      float64
	started      bool
	hadDTS       bool
	stamped      bool
	window       []float64 // latest timestamps in display order
	lastShown    float64   // the last timestamp that left the window
	hasShown     bool
	lastDur      float64
}

// clockRun is a part of a stream in which the clock does not jump. start and end are the smallest timestamp and the
// largest one plus duration, as they are in the file; from and last are where its packets begin in the file.
type clockRun struct {
	from, last int64
	start, end float64
}

// maxClockRuns limits the memory for a stream whose clock jumps all the time.
const maxClockRuns = maxSplices

// reorderWindow is how far display order may be from decoding order.
const reorderWindow = 32

// packet is one line of ffprobe's packet list.
type packet struct {
	stream         int
	pts, dts, dur  float64
	hasPTS, hasDTS bool
	key, discard   bool
	offset, size   int64 // in the file
	hasOffset      bool
	ticks          int64 // pts, in ticks of the stream's clock
	hasTicks       bool
	hash           string // of the data
}

// parsePacket parses a line of ffprobe's compact output.
func parsePacket(line []byte) (packet, bool) {
	p := packet{stream: -1}
	for field := range bytes.SplitSeq(line, []byte("|")) {
		key, value, ok := bytes.Cut(field, []byte("="))
		if !ok {
			continue
		}
		switch string(key) {
		case "stream_index":
			n, err := strconv.Atoi(string(value))
			if err != nil || n < 0 {
				return packet{}, false
			}
			p.stream = n
		case "pts_time":
			p.pts, p.hasPTS = jsonNumber(value).seconds()
		case "pts":
			n, err := strconv.ParseInt(string(value), 10, 64)
			p.ticks, p.hasTicks = n, err == nil
		case "dts_time":
			p.dts, p.hasDTS = jsonNumber(value).seconds()
		case "duration_time":
			if d, ok := jsonNumber(value).seconds(); ok && d > 0 {
				p.dur = d
			}
		case "pos":
			n, err := strconv.ParseInt(string(value), 10, 64)
			p.offset, p.hasOffset = max(n, 0), err == nil && n >= 0
		case "size":
			p.size, _ = strconv.ParseInt(string(value), 10, 64)
		case "data_hash":
			p.hash = string(value)
		case "flags":
			p.key = bytes.IndexByte(value, 'K') >= 0
			p.discard = bytes.IndexByte(value, 'D') >= 0
		}
	}
	return p, p.stream >= 0
}

// Larger steps in decoding time are a new clock. ffmpeg removes them in containers
// where clocks change.
const (
	maxForwardJump  = 10.0
	maxBackwardJump = 0.1
	// maxReordering is how far, in seconds or frames, timestamps go back where packets have no decoding times.
	maxReordering, maxReorderedFrames = 1.0, 8
)

func (t *trackTiming) add(p packet) {
	if p.discard {
		t.hidden++
		return
	}
	t.packets++
	if p.key {
		t.keyframes++
	}
	if p.dur > 0 {
		t.lastDur = p.dur
	}
	pts, ok := p.pts, p.hasPTS
	if !ok {
		// AVI and MPEG program streams may have only decoding times, or none.
		switch {
		case p.hasDTS:
			pts = p.dts
		case t.started:
			pts = t.nextDTS - t.offset
		default:
			return
		}
	}
	clock := pts
	if p.hasDTS {
		clock = p.dts
	}
	if t.advance(clock, p.dur, p.hasDTS) && len(t.runs) <= maxClockRuns {
		t.runs = append(t.runs, clockRun{from: -1, start: pts, end: pts})
	}
	t.runs[len(t.runs)-1].add(p, pts)
	t.show(pts+t.offset, p.dur)
}

func (r *clockRun) add(p packet, pts float64) {
	if p.hasOffset && r.from < 0 {
		r.from = p.offset
	}
	if p.hasOffset {
		r.last = p.offset
	}
	r.start, r.end = min(r.start, pts), max(r.end, pts+p.dur)
}

// advance follows the decoding clock and corrects its jumps. It reports whether a run begins.
func (t *trackTiming) advance(clock, dur float64, isDTS bool) bool {
	step, back := clock+t.offset-t.nextDTS, maxBackwardJump
	switch {
	case !isDTS:
		back = max(maxReordering, maxReorderedFrames*dur)
	case !t.hadDTS:
		back = math.Inf(1) // decoding times, which begin here, are before the others
	}
	t.hadDTS = isDTS
	jumps := t.started && (step > maxForwardJump || step < -back)
	if jumps && t.jumpsAllowed {
		t.offset -= step
		t.skippedTime += max(0, step)
	}
	begins := jumps || !t.started
	t.started = true
	t.nextDTS = clock + t.offset + dur
	return begins
}

func (t *trackTiming) show(pts, dur float64) {
	if !t.stamped || pts < t.first {
		t.first = pts
	}
	if !t.stamped || pts+dur > t.end {
		t.end = pts + dur
	}
	t.stamped = true
	i := len(t.window)
	t.window = append(t.window, pts)
	for ; i > 0 && t.window[i-1] > pts; i-- {
		t.window[i] = t.window[i-1]
	}
	t.window[i] = pts
	if len(t.window) > reorderWindow {
		t.measureGap(t.window[0])
		t.window = t.window[:copy(t.window, t.window[1:])]
	}
}

func (t *trackTiming) measureGap(pts float64) {
	if gap := pts - t.lastShown; t.hasShown {
		t.maxGap = max(t.maxGap, gap)
		if gap == 0 {
			t.repeated++
		}
		if gap > 0 && (t.minGap == 0 || gap < t.minGap) {
			t.minGap = gap
		}
	}
	t.lastShown, t.hasShown = pts, true
}

// finish measures the rest of the window. A last packet without a duration gets
// the average of the others.
func (t *trackTiming) finish() {
	for _, pts := range t.window {
		t.measureGap(pts)
	}
	t.window = nil
	if t.hasShown && t.end <= t.lastShown {
		dur := t.lastDur
		if dur == 0 && t.packets > 1 {
			dur = (t.lastShown - t.first) / float64(t.packets-1)
		}
		t.end = t.lastShown + dur
	}
	if t.hasShown {
		t.maxGap = max(t.maxGap, t.end-t.lastShown)
	}
}

func (t *trackTiming) duration() float64 { return max(0, t.end-t.first) }

// packetReader measures all streams from ffprobe's packet list.
type packetReader struct {
	io.Writer
	jumpsAllowed bool
	tracks       map[int]*trackTiming
	end          int64            // offset after the last packet in the file
	pictures     map[int]*Packets // of streams with a picture
	kept         int              // packets in them
	grid         packetGrid
}

// maxStreams and maxKeptPackets limit the memory that a hostile file can use here. A video of 12 hours at 60
// frames a second has 2.6 million packets.
const maxStreams, maxKeptPackets = 1024, 8 << 20

// newPacketReader also keeps the packets of pictures, which may be nil.
func newPacketReader(jumping bool, pictures map[int]*Packets) *packetReader {
	r := &packetReader{jumpsAllowed: jumping, tracks: map[int]*trackTiming{}, pictures: pictures}
	r.Writer = childproc.Lines(func(line []byte) {
		p, ok := parsePacket(line)
		if !ok {
			return
		}
		r.end = max(r.end, p.offset+p.size)
		if p.hasOffset {
			r.grid.add(p.offset)
		}
		t := r.tracks[p.stream]
		if t == nil {
			if len(r.tracks) >= maxStreams {
				return
			}
			t = &trackTiming{jumpsAllowed: jumping}
			r.tracks[p.stream] = t
		}
		t.add(p)
		r.keep(p)
	})
	return r
}

func (r *packetReader) keep(p packet) {
	if picture := r.pictures[p.stream]; picture != nil {
		picture.add(p)
		if r.kept++; r.kept > maxKeptPackets {
			r.pictures = nil
		}
	}
}

func (r *packetReader) finish() map[int]*trackTiming {
	for _, t := range r.tracks {
		t.finish()
	}
	return r.tracks
}
