package media

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
)

// The graph has two taps besides the encoders: what the decoder gave and what
// the encoders got. Each writes one line per frame in ffmpeg's "framecrc"
// form. The frames themselves are not touched for that: the tap's "encoder"
// passes a pointer on.
const (
	decodedFrames = "decoded.tap"
	encodedFrames = "shown.tap"
)

// tap is the frames that passed one.
type frameList struct {
	frames int64
	// distinct is how many frames came after all before them.
	distinct int64
	// first and end are in seconds; end includes the last frame's duration.
	first, end float64
	// gap is the longest time between two frames.
	maxGap float64
	// holes is how many pauses there are, held how long they last.
	gaps       int64
	gapSeconds float64
}

// readTap reads the list of a tap. Pauses longer than hole seconds are counted,
// unless it is 0.
func readFrameList(file string, hole float64) (frameList, error) {
	f, err := os.Open(file)
	if err != nil {
		return frameList{}, fmt.Errorf("read frame list: %w", err)
	}
	defer f.Close()
	r := newFrameListReader()
	r.minGap = hole
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		_, _ = r.lines.Write(buf[:n])
		if err != nil {
			break
		}
	}
	r.lines.Flush()
	return r.frameList(), nil
}

type frameListReader struct {
	lines          lineWriter
	frames         int64
	distinct       int64
	first, last    int64
	lastDur        int64
	maxGap         int64
	secondsPerTick float64 // seconds per tick
	minGap         float64
	gaps, gapTicks int64
}

func newFrameListReader() *frameListReader {
	r := &frameListReader{secondsPerTick: 1.0 / videoTimescale}
	r.lines.line = r.line
	return r
}

func (r *frameListReader) line(line []byte) {
	if rest, ok := bytes.CutPrefix(line, []byte("#tb 0:")); ok {
		if v := parseRatio(string(bytes.TrimSpace(rest))); v > 0 {
			r.secondsPerTick = v
		}
		return
	}
	fields := bytes.Split(line, []byte(","))
	if len(fields) < 5 || bytes.HasPrefix(line, []byte("#")) {
		return
	}
	pts, err1 := strconv.ParseInt(string(bytes.TrimSpace(fields[2])), 10, 64)
	dur, err2 := strconv.ParseInt(string(bytes.TrimSpace(fields[3])), 10, 64)
	if err1 != nil || err2 != nil || pts > math.MaxInt64/4 || pts < -math.MaxInt64/4 || dur < 0 || dur > math.MaxInt64/4 {
		return
	}
	if r.frames == 0 || pts > r.last {
		r.distinct++
	}
	if r.frames == 0 {
		r.first, r.last = pts, pts
	}
	r.frames++
	r.first = min(r.first, pts)
	r.maxGap = max(r.maxGap, pts-r.last)
	if r.minGap > 0 && float64(pts-r.last)*r.secondsPerTick > r.minGap {
		r.gaps++
		r.gapTicks += pts - r.last
	}
	if pts >= r.last {
		r.last, r.lastDur = pts, dur
	}
}

// unknownDuration is the longest duration of a frame, in seconds, that says nothing:
// ffmpeg 7 writes one tick of the source's clock, a millisecond in Matroska, where it
// knows none.
const unknownDuration = 0.0015

func (r *frameListReader) frameList() frameList {
	dur := float64(r.lastDur) * r.secondsPerTick
	if r.frames > 1 && dur <= unknownDuration {
		dur = float64(r.last-r.first) * r.secondsPerTick / float64(r.frames-1)
	}
	return frameList{
		frames: r.frames, distinct: r.distinct, first: float64(r.first) * r.secondsPerTick, end: float64(r.last)*r.secondsPerTick + dur,
		maxGap: float64(r.maxGap) * r.secondsPerTick, gaps: r.gaps, gapSeconds: float64(r.gapTicks) * r.secondsPerTick,
	}
}
