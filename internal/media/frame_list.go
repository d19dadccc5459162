package media

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"github.com/cuelight/cuelight/internal/childproc"
)

// The filter graph has two extra outputs: the frames from the decoder and the
// frames for the encoders. Each is a file with one line per frame in ffmpeg's
// "framecrc" format. The "encoder" of these outputs passes on a pointer, so the
// frames themselves are not copied. A third one has the checksums of a chunk's first
// decoded frames.
const (
	decodedFrames = "decoded.tap"
	encodedFrames = "shown.tap"
	firstFrames   = "first.tap"
)

// frameList summarizes one of these files. Times are in seconds.
type frameList struct {
	frames     int64
	distinct   int64   // frames with a timestamp above all earlier ones
	first, end float64 // end includes the last frame's duration
	gaps       int64
	gapSeconds float64
	runs       []FrameRun
}

// readFrameList reads a frame list and counts gaps longer than minGap seconds,
// unless minGap is 0.
func readFrameList(file string, minGap float64) (frameList, error) {
	f, err := os.Open(file)
	if err != nil {
		return frameList{}, fmt.Errorf("read frame list: %w", err)
	}
	defer f.Close()
	r := newFrameListReader()
	r.minGap = minGap
	if _, err := io.Copy(r, f); err != nil {
		return frameList{}, fmt.Errorf("read frame list: %w", err)
	}
	return r.frameList(), nil
}

type frameListReader struct {
	io.Writer
	frames         int64
	distinct       int64
	first, last    int64
	lastDur        int64
	secondsPerTick float64
	minGap         float64
	gaps, gapTicks int64
	keep           bool
	times          []int64  // of all frames, if keep is set
	sums           []string // their streams and checksums
	runs           runBuilder
}

func newFrameListReader() *frameListReader {
	r := &frameListReader{secondsPerTick: 1.0 / videoTimescale}
	r.Writer = childproc.Lines(r.line)
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
	if len(fields) < 6 || bytes.HasPrefix(line, []byte("#")) {
		return
	}
	pts, err1 := strconv.ParseInt(string(bytes.TrimSpace(fields[2])), 10, 64)
	dur, err2 := strconv.ParseInt(string(bytes.TrimSpace(fields[3])), 10, 64)
	if err1 != nil || err2 != nil || pts > math.MaxInt64/4 || pts < -math.MaxInt64/4 || dur < 0 || dur > math.MaxInt64/4 {
		return
	}
	if r.keep {
		r.times, r.sums = append(r.times, pts), append(r.sums, fmt.Sprintf("%s %s", fields[0], bytes.TrimSpace(fields[5])))
	}
	if r.frames == 0 || pts > r.last {
		r.distinct++
	}
	if r.frames == 0 {
		r.first, r.last = pts, pts
	}
	r.frames++
	r.runs.add(pts - r.first)
	r.first = min(r.first, pts)
	if r.minGap > 0 && float64(pts-r.last)*r.secondsPerTick > r.minGap {
		r.gaps++
		r.gapTicks += pts - r.last
	}
	if pts >= r.last {
		r.last, r.lastDur = pts, dur
	}
}

// unknownDuration is the longest frame duration, in seconds, that means
// "unknown": ffmpeg 7 then writes one tick of the source's clock, which is a
// millisecond in Matroska.
const unknownDuration = 0.0015

func (r *frameListReader) frameList() frameList {
	dur := float64(r.lastDur) * r.secondsPerTick
	if r.frames > 1 && dur <= unknownDuration {
		dur = float64(r.last-r.first) * r.secondsPerTick / float64(r.frames-1)
	}
	return frameList{
		frames: r.frames, distinct: r.distinct,
		first: float64(r.first) * r.secondsPerTick, end: float64(r.last)*r.secondsPerTick + dur,
		gaps: r.gaps, gapSeconds: float64(r.gapTicks) * r.secondsPerTick,
		runs: limitRuns(r.runs.runs()),
	}
}
