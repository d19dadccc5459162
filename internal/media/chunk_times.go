package media

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// frameTimes are the times of all frames, computed from the packets' timestamps as ffmpeg computes them.
type frameTimes struct {
	timeBase  [2]int64
	zero      int64
	decoded   []int64 // in ticks after zero, in order
	keys      []int64 // those of the keyframes
	shown     []int64 // of output frames, in ticks of videoTimescale
	segment   int64   // see timing.segment
	starts    []int64 // see timing.starts
	origin    []int   // which decoded frame each output frame is made of
	wasted    float64 // seconds that chunks decode before their first frames
	preroll   int     // how many decoded frames before it a frame depends on
	fileStart float64 // where the file begins, in seconds after ffmpeg's zero
	exact     bool    // seeking needs no margin
	firstSeek float64 // where decoding begins for the first chunk
}

func newFrameTimes(info *Info, p *Packets) (*frameTimes, error) {
	f := &frameTimes{timeBase: p.timeBase, fileStart: info.FormatStart - ffmpegZero(info)}
	f.segment, f.starts = planTiming(info).segment, info.Video.copyStarts()
	f.firstSeek = planTiming(info).seek()
	f.exact = info.Container == "mov,mp4,m4a,3gp,3g2,mj2" // see seekTo
	f.zero = rescale(int64(math.Round(ffmpegZero(info)*1e6)), p.timeBase[1], 1e6*p.timeBase[0])
	f.decoded, f.keys = sorted(p.times, f.zero), sorted(p.keys, f.zero)
	if len(f.decoded) < 3 || len(f.keys) == 0 {
		return nil, &indivisibleError{"it has too few frames or no keyframes"}
	}
	if !isIncreasing(f.decoded) {
		return nil, &indivisibleError{"two of its frames have the same timestamp"}
	}
	if info.Video.Frames != int64(len(f.decoded)) {
		return nil, &indivisibleError{"not every packet of it is a frame, or it has changed since it was probed"}
	}
	f.show(info)
	if !isIncreasing(f.shown) {
		return nil, &indivisibleError{"two of its frames are shown at the same time"}
	}
	return f, nil
}

func (f *frameTimes) seconds(ticks int64) float64 {
	return float64(ticks) * float64(f.timeBase[0]) / float64(f.timeBase[1])
}

func isIncreasing(list []int64) bool {
	for i := 1; i < len(list); i++ {
		if list[i] <= list[i-1] {
			return false
		}
	}
	return true
}

// show applies what the filter graph does to timestamps. It uses the same floating-point operations.
func (f *frameTimes) show(info *Info) {
	v, plan := info.Video, planTiming(info)
	times, den := slices.Clone(f.decoded), f.timeBase[1]
	f.origin = make([]int, len(times))
	for i := range f.origin {
		f.origin[i] = i
	}
	if v.Interlaced {
		den *= 2
		f.preroll = 2
		times, f.origin = deinterlacedTimes(times, v.framesPerDecoded() == 2)
	}
	tick := float64(f.timeBase[0]) / float64(den)
	if math.Abs(plan.offset) > 0.0005 {
		offset, _ := strconv.ParseFloat(strconv.FormatFloat(plan.offset, 'f', 6, 64), 64)
		for i := range times {
			times[i] = int64(float64(times[i]) - offset/tick)
		}
	}
	if plan.dropsFrames {
		times, f.origin = droppedTimes(times, f.origin, tick)
	}
	lead, _ := strconv.ParseFloat(strconv.FormatFloat(plan.lead+0.5, 'f', 3, 64), 64)
	if float64(times[0])*tick < lead {
		times[0] = 0
	}
	for i := range times {
		times[i] = encoderTime(times[i], f.timeBase[0], den)
	}
	f.shown = times
}

// deinterlacedTimes are in halves of ticks: those of a frame, and of its second field.
func deinterlacedTimes(times []int64, perField bool) (shown []int64, origin []int) {
	for i, t := range times {
		shown, origin = append(shown, 2*t), append(origin, i)
		if !perField {
			continue
		}
		next := 2*t - times[max(i-1, 0)]
		if i+1 < len(times) {
			next = times[i+1]
		}
		shown, origin = append(shown, t+next), append(origin, i)
	}
	return shown, origin
}

// droppedTimes keeps the frames that the filter "select" of [timing.filters] keeps.
func droppedTimes(times []int64, origin []int, tick float64) (kept []int64, from []int) {
	rate, _ := strconv.ParseFloat(strconv.FormatFloat(maxRateWithSlack, 'f', 1, 64), 64)
	last := math.Inf(-1)
	for i, pts := range times {
		// The conversion keeps the compiler from rounding once instead of twice.
		if t := float64(float64(pts) * tick); t-last >= 1/rate {
			kept, from, last = append(kept, pts), append(from, origin[i]), t
		}
	}
	return kept, from
}

// encoderTime converts a timestamp of the filter graph to the time base of the encoders, as ffmpeg does.
func encoderTime(pts, num, den int64) int64 {
	const extraBits = 13 // ffmpeg: 29 - log2(videoTimescale)
	fine := float64(rescale(pts, num*(videoTimescale<<extraBits), den)) / (1 << extraBits)
	return int64(math.RoundToEven(fine + math.Copysign(1.0/(1<<17), fine)))
}

// rescale returns a*b/c, rounded to the nearest integer and away from zero, without overflow.
func rescale(a, b, c int64) int64 {
	magnitude := uint64(max(a, -a))
	hi, lo := bits.Mul64(magnitude, uint64(b))
	lo, carry := bits.Add64(lo, uint64(c)/2, 0)
	if hi+carry >= uint64(c) {
		return 0 // no valid timestamp
	}
	q, _ := bits.Div64(hi+carry, lo, uint64(c))
	if a < 0 {
		return -int64(q)
	}
	return int64(q)
}

// digestTimes is a short digest of a list of times.
func digestTimes(times []int64) string {
	h := sha256.New()
	var b []byte
	for _, t := range times {
		b = binary.AppendVarint(b[:0], t)
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:10])
}
