package media

import (
	"fmt"
	"math"
)

const (
	// videoTimescale is the timescale of every video rendition: the smallest with
	// a whole number of ticks per frame at 23.976, 24, 25, 29.97, 30, 50, 59.94
	// and 60 frames a second.
	videoTimescale = 120000
	// segmentSeconds is the target duration of segments. Each begins with its only keyframe: another one every two seconds would
	// take 5 to 20 % more bits, and players seek in segments that they have loaded anyway. See timing.segment for their exact length.
	segmentSeconds = 6
	// repeatSeconds is how long a frame stays before it is repeated.
	repeatSeconds = 2
	// maxRateWithSlack is the frame rate above which frames are dropped.
	maxRateWithSlack = maxFrameRate + 0.5
)

// timing says how the source's timestamps change.
//
// Every decoded frame keeps its own timestamp, so that a rendition's frames can
// be counted against those of the source. There are two exceptions. Above 60
// frames a second, frames that follow too closely are dropped. If a frame stays
// for more than two seconds, or the audio goes on for that long after the last
// frame, segments could not be cut; in such sources (slide shows, songs with a
// still picture, screen recordings) the current frame is repeated every two
// seconds until the audio ends.
type timing struct {
	offset          float64 // seconds from ffmpeg's zero to that of the output
	lead            float64 // seconds from the output's zero to the first frame
	dropsFrames     bool
	repeatedFrames  int     // number of repetitions; 0 if none are needed
	isSlideShow     bool    // hardly anything but repeated frames
	repeatedSeconds float64 // seconds that the repeated frames fill
	maxSeconds      float64 // output is cut here
	segment         int64   // ticks of videoTimescale after which a segment begins, at the next frame
	part            *Range  // of the source; nil for all of it
	starts          []int64 // when segments begin instead, in ticks after the first frame, if a rendition is a copy
	cut             *chunkCut
}

// seek is where decoding begins, in seconds from ffmpeg's zero. Chunks seek for themselves, and keep the timestamps.
func (t timing) seek() float64 {
	if t.part == nil || t.cut != nil {
		return 0
	}
	return t.part.Seek
}

// begin is how many seconds after that the output begins.
func (t timing) begin() float64 { return t.offset - t.seek() }

// skips reports whether much is decoded before the part, while the outputs show no progress.
func (t timing) skips() bool { return t.part != nil && t.cut == nil && t.begin() > 2*preroll }

func (t timing) inputOptions() []string {
	if t.cut != nil {
		return t.cut.inputOptions()
	}
	return seekPartOptions(t.seek())
}

// partFilters drop the frames around the part.
func (t timing) partFilters() []string {
	if t.part == nil {
		return nil
	}
	return []string{t.part.filter(t.seek())}
}

func planTiming(info *Info) timing {
	t := timing{maxSeconds: max(info.Duration*1.05, info.Duration+5), segment: segmentTicks}
	t.offset, t.part = info.Start-ffmpegZero(info), info.Range
	v := info.Video
	if v == nil {
		return t
	}
	t.starts = v.copyStarts()
	t.lead = max(0, v.Start+v.Undecodable-info.Start)
	after := info.Duration - (v.Start - info.Start) - v.Duration
	t.dropsFrames = v.outputRate() > maxFrameRate*1.001
	if v.MaxGap > repeatSeconds || t.lead > repeatSeconds || after > repeatSeconds {
		t.repeatedFrames = max(1, int(math.Ceil((info.Duration-minTailSeconds)/repeatSeconds)))
		t.repeatedSeconds = info.Duration
		t.isSlideShow = v.Frames < int64(t.repeatedFrames)
		// In containers that count milliseconds, 60 frames a second may look like 62.
		t.dropsFrames = t.dropsFrames || v.MinGap > 0 && v.MinGap < 0.8/maxFrameRate
	}
	if !t.dropsFrames && t.repeatedFrames == 0 {
		t.segment = wholeFrames(v.outputRate())
	}
	return t
}

// wholeFrames is the length of a segment at a frame rate, in ticks: six seconds, or at the rates of NTSC a thousandth more. So segments
// of all usual rates have equally many frames.
func wholeFrames(rate float64) int64 {
	switch standardRate(rate) {
	case 24000.0 / 1001, 30000.0 / 1001, 60000.0 / 1001:
		return segmentTicks / 1000 * 1001
	}
	return segmentTicks
}

// framesPerSegment is how many frames all segments have, or more if there is one segment; 0 if that is not certain.
func (t timing) framesPerSegment(v *Video) int {
	if t.repeatedFrames == 0 && (t.lead+v.Duration)*videoTimescale < float64(t.segment) {
		return maxInterval
	}
	if len(v.FrameTimes) != 1 || t.dropsFrames || t.repeatedFrames > 0 {
		return 0
	}
	frames := math.Round(float64(t.segment) / v.FrameTimes[0].Step)
	if math.Abs(frames*v.FrameTimes[0].Step/float64(t.segment)-1) > 0.0005 {
		return 0
	}
	return int(frames)
}

// firstFrameHold is how much longer than others the first frame is shown.
func (t timing) firstFrameHold() float64 {
	if t.repeatedFrames > 0 {
		return 0
	}
	return t.lead
}

// ffmpegZero is the timestamp that ffmpeg maps to 0: the smallest of all
// streams, or, in containers with timestamp jumps, of the used streams.
func ffmpegZero(info *Info) float64 {
	if !hasTimestampJumps(info.Container) || info.Range != nil {
		return info.FormatStart
	}
	first := info.Start
	if info.Video != nil {
		first = min(first, info.Video.Start)
	}
	for _, a := range info.Audio {
		first = min(first, a.Start)
	}
	return first
}

// standardRate is the usual frame rate nearest to an average.
func standardRate(fps float64) float64 {
	for _, usual := range []float64{24000.0 / 1001, 24, 25, 30000.0 / 1001, 30, 48, 50, 60000.0 / 1001, 60} {
		if math.Abs(fps-usual) < 0.0005*usual {
			return usual
		}
	}
	return fps
}

// repeatFilters are the filters that repeat frames. They buffer up to two seconds
// of frames, so they run after the frames were scaled down.
func (t timing) repeatFilters() []string {
	if t.repeatedFrames == 0 {
		return nil
	}
	// Rounding up selects the latest frame at each time, or one that follows within
	// half a millisecond; then the later of the two is dropped.
	return []string{fmt.Sprintf("split[own][latest];[latest]settb=1/1000000,setpts=PTS-500,"+
		"fps=fps=1/%d:start_time=0:round=up,"+
		"tpad=stop_mode=clone:stop=-1,trim=end_frame=%d[repeated];[repeated][own]interleave,"+
		"select='isnan(prev_selected_t)+gt(t-prev_selected_t\\,0.0005)'", repeatSeconds, t.repeatedFrames)}
}

// filters change timestamps. After them and repeatFilters, the first frame is
// at 0.
func (t timing) filters() []string {
	var f []string
	if math.Abs(t.begin()) > 0.0005 {
		f = append(f, fmt.Sprintf("setpts=PTS-%.6f/TB", t.begin()))
	}
	if t.dropsFrames {
		// Dropping whole frames keeps the motion even, where a conversion to 60
		// would stutter: 120 becomes 60, 100 becomes 50.
		f = append(f, fmt.Sprintf("select='isnan(prev_selected_t)+gte(t-prev_selected_t\\,1/%.1f)'", maxRateWithSlack))
	}
	if t.repeatedFrames > 0 && t.part != nil {
		return append(f, `setpts=max(PTS\,0)`) // its first frame may be shown from before on
	}
	if t.repeatedFrames > 0 {
		return f
	}
	if t.cut.hasFramesBefore() {
		// The filter of ffmpeg 7 forgets how long frames last, as the one below does in an undivided transcode: the
		// last frame of both lasts as long as the one before it.
		return append(append(f, "setpts=PTS"), t.cut.shownFilters()...)
	}
	// Show the first frame from the start, even if the audio begins earlier. If
	// the first frames are lost, the first decoded one keeps its time.
	f = append(f, fmt.Sprintf("setpts='if(eq(N\\,0)*lt(T\\,%.3f)\\,0\\,PTS)'", t.lead+0.5))
	return append(f, t.cut.shownFilters()...)
}
