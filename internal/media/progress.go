package media

import (
	"bytes"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
)

const (
	// maxPercent is the highest Percent before the output is checked.
	maxPercent = 99.0
	// smoothing is the averaging time of the speed, in seconds.
	smoothing = 15.0
	// The speed is unknown until minSpeedSeconds have passed, and until
	// minSpeedShare of the work is done or maxSpeedWait seconds have passed.
	// Before, it is that of starting up or of the disk cache.
	minSpeedSeconds = 2.0
	minSpeedShare   = 0.01
	maxSpeedWait    = 30.0
	// flushShare is the time for flushing the encoders, as a share of the whole.
	flushShare = 0.01
)

// progressReader parses ffmpeg's -progress output: blocks of key=value lines that
// end in "progress=continue" or "progress=end".
type progressReader struct {
	io.Writer
	duration float64
	report   func(Progress)
	now      func() time.Time
	// total is the number of frames; if it is set, they show the position.
	total int64

	position float64
	frames   int64
	bytes    int64
	steps    int64
	ended    bool

	speed        float64 // 0 until it is known
	start        time.Time
	lastUpdate   time.Time
	lastPosition float64
}

func newProgressReader(duration float64, report func(Progress), now func() time.Time) *progressReader {
	r := &progressReader{duration: duration, report: report, now: now, start: now()}
	r.Writer = childproc.Lines(r.line)
	return r
}

// stepCount counts steps forward. A child that only repeats its output is stalled.
func (r *progressReader) stepCount() int64 { return r.steps }

func (r *progressReader) line(line []byte) {
	key, value, ok := bytes.Cut(line, []byte("="))
	if !ok {
		return
	}
	switch string(key) {
	case "out_time_us":
		// It is "N/A" until the first packet. out_time_ms also has microseconds.
		us, err := strconv.ParseInt(string(value), 10, 64)
		if err == nil && r.total == 0 && float64(us)/1e6 > r.position && us/1e6 < maxTimestamp {
			r.position = float64(us) / 1e6
			r.steps++
		}
	case "frame":
		r.advance(&r.frames, value)
		if r.total > 0 {
			r.position = r.duration * min(1, float64(r.frames)/float64(r.total))
		}
	case "total_size":
		r.advance(&r.bytes, value)
	case "progress":
		r.ended = string(value) == "end"
		if r.ended {
			r.steps++
		}
		r.endBlock()
	}
}

func (r *progressReader) advance(v *int64, value []byte) {
	if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil && n > *v {
		*v = n
		r.steps++
	}
}

func (r *progressReader) endBlock() {
	r.updateSpeed(r.now())
	if r.report == nil {
		return
	}
	p := Progress{Position: r.position, Speed: r.speed, Frames: r.frames}
	if r.duration > 0 {
		p.Percent = min(maxPercent, 100*r.position/r.duration)
		if left := r.duration*(1+flushShare) - r.position; left > 0 && r.speed > 0 {
			p.ETA = time.Duration(min(left/r.speed, maxTimestamp) * float64(time.Second)).Round(time.Second)
		}
	}
	r.report(p)
}

// updateSpeed first takes the average so far, and from then on a moving average.
func (r *progressReader) updateSpeed(now time.Time) {
	elapsed := now.Sub(r.start).Seconds()
	wall := now.Sub(r.lastUpdate).Seconds()
	switch {
	case elapsed < minSpeedSeconds, elapsed < maxSpeedWait && r.position < minSpeedShare*r.duration:
		return
	case r.speed == 0:
		r.speed = r.position / elapsed
	case wall > 0:
		weight := 1 - math.Exp(-wall/smoothing)
		r.speed += weight * ((r.position-r.lastPosition)/wall - r.speed)
	}
	r.lastUpdate, r.lastPosition = now, r.position
}
