package media

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// chunkCut is the part of a source that one chunk encodes. Its methods change the command line of a transcode; on
// nil they change nothing.
type chunkCut struct {
	plan       *ChunkPlan
	n          int
	interlaced bool
	starts     []int64 // see timing.starts
	leads      bool    // encode the lead-in; ffmpeg before 5.1 may not be able to drop its packets
}

func newChunkCut(plan *ChunkPlan, n int, info *Info, found capabilities, video []renditionJob) *chunkCut {
	leads := found.fpsMode && plan.Chunks[n].Lead < plan.Chunks[n].Start
	if slices.ContainsFunc(video, func(j renditionJob) bool { return j.rung.Codec == av1Codec }) {
		leads = leads && found.forcesAV1 // or else its keyframes are counted from the first frame
	}
	return &chunkCut{plan: plan, n: n, interlaced: info.Video.Interlaced, starts: info.Video.copyStarts(), leads: leads && n > 0}
}

func (c *chunkCut) chunk() *Chunk { return &c.plan.Chunks[c.n] }

// next is the chunk after this one; nil if this is the last.
func (c *chunkCut) next() *Chunk {
	if c.n+1 == len(c.plan.Chunks) {
		return nil
	}
	return &c.plan.Chunks[c.n+1]
}

func (c *chunkCut) hasFramesBefore() bool { return c != nil && c.n > 0 }

// inputOptions seek to the keyframe before the chunk.
func (c *chunkCut) inputOptions() []string {
	return seekOptions(c.chunk().Seek)
}

// seekOptions keep the timestamps of the source, so that they are the same in every chunk.
func seekOptions(seek float64) []string {
	if seek <= 0 {
		return []string{"-copyts"}
	}
	return []string{"-copyts", "-noaccurate_seek", "-ss", formatSeconds(seek)}
}

// sourceFilters count timestamps from ffmpeg's zero, and drop what is decoded around the chunk, unless a filter
// needs it. Their second output is [first].
func (c *chunkCut) sourceFilters() []string {
	if c == nil {
		return nil
	}
	var filters []string
	if c.plan.Zero != 0 {
		// The filter of ffmpeg 7 forgets how long frames last.
		filters = append(filters, fmt.Sprintf("setpts=PTS-(%d)", c.plan.Zero))
	}
	from := c.chunk().Source
	if c.leads {
		from = c.chunk().LeadSource
	}
	if trim := c.decodedTrim(from); trim != "" && !c.interlaced {
		filters = append(filters, trim)
	}
	if c.hasFramesBefore() {
		// Later, they would be in the pixel format that the filters choose.
		filters = append(filters, "split[source0][start];[start]"+c.firstFilters()+"[first];[source0]null")
	}
	return filters
}

// decodedLabel names the output of the graph's first filters that becomes [decoded], and the filter in between.
func (c *chunkCut) decodedLabel() (label, filter string) {
	if c == nil || !c.interlaced && !c.leads {
		return "decoded", ""
	}
	trim := c.decodedTrim(c.chunk().Source)
	if trim == "" {
		return "decoded", ""
	}
	return "around", ";[around]" + trim + "[decoded]"
}

// firstFilters keep the frames that proveStart compares.
func (c *chunkCut) firstFilters() string {
	return c.decodedTrim(c.chunk().Source) + ",trim=end_frame=8"
}

// shownLabel names the output of the graph that becomes [shown], and the filter in between.
func (c *chunkCut) shownLabel() (label, filter string) {
	if c == nil || !c.leads {
		return "shown", ""
	}
	return "all", ";[all]trim=start=" + c.chunk().startBetween() + "[shown]"
}

func (c *chunkCut) decodedTrim(from int64) string {
	limits := ""
	if c.hasFramesBefore() {
		limits += fmt.Sprintf(":start_pts=%d", from)
	}
	if next := c.next(); next != nil {
		limits += fmt.Sprintf(":end_pts=%d", next.Source)
	}
	if limits == "" {
		return ""
	}
	return "trim=" + limits[1:]
}

// shownFilters drop deinterlaced frames around the chunk. The limits are in the middle between two frames.
func (c *chunkCut) shownFilters() []string {
	if c == nil || !c.interlaced {
		return nil
	}
	limits := ""
	switch {
	case c.leads:
		limits += ":start=" + formatSeconds(float64(c.chunk().Lead-keyframeSlack)/videoTimescale)
	case c.hasFramesBefore():
		limits += ":start=" + c.chunk().startBetween()
	}
	if next := c.next(); next != nil {
		limits += ":end=" + next.startBetween()
	}
	if limits == "" {
		return nil
	}
	return []string{"trim=" + limits[1:]}
}

// startBetween is a time between the last frame before the chunk and its first one.
func (c *Chunk) startBetween() string {
	return formatSeconds(float64(c.Before[len(c.Before)-1]+c.Start) / 2 / videoTimescale)
}

func (c *chunkCut) decodedTimeBase() string {
	if c == nil {
		return outputTimeBase
	}
	return fmt.Sprintf("%d:%d", c.plan.TimeBase[0], c.plan.TimeBase[1])
}

// keyframes lists the times from which on the next frame is a keyframe. An expression counts from the encoder's first
// frame, which may be any of the lead-in's if the source is damaged there.
func (c *chunkCut) keyframes() string {
	times, zero := []string{c.chunk().startBetween()}, c.plan.Head[0]-keyframeSlack
	if i, _ := slices.BinarySearch(c.starts, c.chunk().Start-c.plan.Head[0]+1); c.starts != nil {
		return strings.Join(append(times, keyframeTimes(c.starts[i:min(i+c.chunk().Segments, len(c.starts))], c.plan.Head[0])...), ",")
	}
	step := c.plan.segmentTicks()
	last := int64(c.chunk().Segment+c.chunk().Segments+1) * step
	for at := ((c.chunk().Start-zero)/step + 1) * step; at < last; at += step {
		times = append(times, formatSeconds(float64(zero+at)/videoTimescale))
	}
	return strings.Join(times, ",")
}

// outputStart is when the chunk begins, in seconds from the start of the output.
func (c *chunkCut) outputStart() float64 {
	return float64(c.chunk().Start-c.plan.Head[0]) / videoTimescale
}

// decodedEnd is when the last decoded frame ends. If ffmpeg does not know its duration, that is the average of all
// frames up to it, as in an undivided transcode.
func (c *chunkCut) decodedEnd(list *frameListReader) float64 {
	all := *list
	all.first = c.plan.Chunks[0].Source
	for _, before := range c.plan.Chunks[:c.n] {
		all.frames += before.Decoded
	}
	return all.frameList().end
}

// encoderArgs begin a chunk with a half-full rate buffer, because the chunk before has used some of it, and drop the
// packets of the lead-in, which uses some, too. x264 would begin with a full buffer and spend more than the rung's
// bitrate.
func (c *chunkCut) encoderArgs(r Rung) []string {
	if !c.hasFramesBefore() {
		return nil
	}
	args := []string{"-force_key_frames", c.keyframes()}
	const bufferSeconds, leadShare = 2, 0.7
	if !c.leads {
		return append(args, "-rc_init_occupancy", strconv.Itoa(r.VideoBitrate*bufferSeconds/2))
	}
	return append(args, "-rc_init_occupancy", strconv.Itoa(int(float64(r.VideoBitrate)*bufferSeconds*leadShare)),
		"-bsf:v", `noise=drop=lt(pts*tb\,`+c.chunk().startBetween()+")")
}

func (t timing) hlsArgs(folder string) []string {
	switch {
	case t.cut == nil && t.starts != nil:
		return hlsArgs(folder, 0.001) // at each keyframe
	case t.cut == nil:
		return hlsArgs(folder, float64(t.segment)/videoTimescale)
	}
	first := []string{"-start_number", strconv.Itoa(t.cut.chunk().Segment)}
	return append(first, hlsArgs(folder, t.cut.chunk().SegmentTime)...)
}

// stitchable is libx264 with headers that do not depend on the content.
var stitchable = func() videoEncoder {
	e := libx264
	e.more = append(slices.Clone(e.more), "-x264-params", "stitchable=1")
	return e
}()

func segmentName(n int) string { return fmt.Sprintf(segmentPattern, n) }

func chunkName(n int) string { return "chunk " + strconv.Itoa(n) }
