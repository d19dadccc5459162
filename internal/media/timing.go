package media

import (
	"fmt"
	"math"
)

const (
	// ticks is the clock of every video rendition: the smallest that has a
	// whole number of ticks for each frame at 23.976, 24, 25, 29.97, 30, 50,
	// 59.94 and 60 frames a second.
	videoTimescale = 120000
	// keyframeEvery is the distance of keyframes and segmentEvery the length
	// aimed at for segments, in seconds.
	keyframeSeconds = 2
	segmentSeconds  = 6
	// fastest is the frame rate above which frames are left out.
	maxRateWithSlack = maxFrameRate + 0.5
)

// timing says what becomes of the source's timestamps.
//
// Every decoded frame is kept with its own timestamp, whatever the rate, so that
// the frames of a rendition can be counted against those of the source. Two things
// are changed. Above 60 frames a second, frames that follow too closely are dropped.
// And where a frame stays for more than two seconds, or the sound goes on that long
// after the last frame, segments could not be cut: in such sources (slide shows,
// songs with a still picture, recordings of screens) the frame that is shown is
// repeated every two seconds, to the end of the sound.
type timing struct {
	offset          float64 // seconds from ffmpeg's zero to ours
	lead            float64 // seconds from our zero to the first frame
	dropsFrames     bool
	repeatedFrames  int     // how many times a frame is repeated; 0 where none need be
	isSlideShow     bool    // hardly anything but repeated frames
	repeatedSeconds float64 // seconds that the repeated frames fill
	maxSeconds      float64 // seconds; more than this is not written
}

func planTiming(info *Info) timing {
	t := timing{maxSeconds: max(info.Duration*1.05, info.Duration+5)}
	t.offset = info.Start - ffmpegZero(info)
	v := info.Video
	if v == nil {
		return t
	}
	t.lead = max(0, v.Start+v.Undecodable-info.Start)
	after := info.Duration - (v.Start - info.Start) - v.Duration
	t.dropsFrames = v.outputRate() > maxFrameRate*1.001
	if v.MaxGap > keyframeSeconds || t.lead > keyframeSeconds || after > keyframeSeconds {
		t.repeatedFrames = max(1, int(math.Ceil((info.Duration-minTailSeconds)/keyframeSeconds)))
		t.repeatedSeconds = info.Duration
		t.isSlideShow = v.Frames < int64(t.repeatedFrames)
		// Rates of 60 may look like 62 where a container counts milliseconds.
		t.dropsFrames = t.dropsFrames || v.MinGap > 0 && v.MinGap < 0.8/maxFrameRate
	}
	return t
}

// held is how much longer than others the first frame is shown.
func (t timing) firstFrameHold() float64 {
	if t.repeatedFrames > 0 {
		return 0
	}
	return t.lead
}

// zero is the timestamp that ffmpeg makes 0: the smallest of all streams, but
// in containers where clocks jump the smallest of those in use.
func ffmpegZero(info *Info) float64 {
	if !hasTimestampJumps(info.Container) {
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

// steadyRate is the usual frame rate nearest to an average.
func standardRate(fps float64) float64 {
	for _, usual := range []float64{24000.0 / 1001, 24, 25, 30000.0 / 1001, 30, 48, 50, 60000.0 / 1001, 60} {
		if math.Abs(fps-usual) < 0.0005*usual {
			return usual
		}
	}
	return fps
}

// fields is how many frames are made of a decoded one: two of an interlaced one,
// where that is not more than may be published.
func (v *Video) framesPerDecoded() int64 {
	if v.Interlaced && 2*v.FPS <= maxFrameRate*1.001 {
		return 2
	}
	return 1
}

// shownRate is the frame rate after deinterlacing.
func (v *Video) outputRate() float64 { return float64(v.framesPerDecoded()) * v.FPS }

// repeatFilters are the last part of the graph that deals with time. They keep up to two
// seconds of frames, so they come when these are no larger than the largest rendition.
func (t timing) repeatFilters() []string {
	if t.repeatedFrames == 0 {
		return nil
	}
	// Rounded up, a repeated frame is the newest one at its time, or the one that
	// follows within half a millisecond. Of the two, the later is dropped then.
	return []string{fmt.Sprintf("split[own][latest];[latest]settb=1/1000000,setpts=PTS-500,fps=fps=1/%d:start_time=0:round=up,"+
		"tpad=stop_mode=clone:stop=-1,trim=end_frame=%d[repeated];[repeated][own]interleave,"+
		"select='isnan(prev_selected_t)+gt(t-prev_selected_t\\,0.0005)'", keyframeSeconds, t.repeatedFrames)}
}

// filters is the part of the graph that deals with time. In seconds it works
// on ffmpeg's T; after it, and after repeatFilters, the first frame is at 0.
func (t timing) filters() []string {
	var f []string
	if math.Abs(t.offset) > 0.0005 {
		f = append(f, fmt.Sprintf("setpts=PTS-%.6f/TB", t.offset))
	}
	if t.dropsFrames {
		// Dropping whole frames keeps an even rhythm where a conversion to 60
		// would stutter: 120 becomes 60, 100 becomes 50.
		f = append(f, fmt.Sprintf("select='isnan(prev_selected_t)+gte(t-prev_selected_t\\,1/%.1f)'", maxRateWithSlack))
	}
	if t.repeatedFrames > 0 {
		return f
	}
	// The first frame is shown from the start on, even where the sound begins
	// before the picture. Where all frames near it are lost, the first stays where
	// it is.
	return append(f, fmt.Sprintf("setpts='if(eq(N\\,0)*lt(T\\,%.3f)\\,0\\,PTS)'", t.lead+0.5))
}
