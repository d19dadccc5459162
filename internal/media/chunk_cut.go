package media

import (
	"fmt"
	"strconv"
)

// chunkCut is the part of a source that one chunk encodes. Its methods change the command line of a transcode; on
// nil they change nothing.
type chunkCut struct {
	plan       *ChunkPlan
	n          int
	interlaced bool
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
	if c == nil {
		return nil
	}
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
	if trim := c.decodedTrim(); trim != "" && !c.interlaced {
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
	if c == nil || !c.interlaced || c.decodedTrim() == "" {
		return "decoded", ""
	}
	return "around", ";[around]" + c.decodedTrim() + "[decoded]"
}

// firstFilters keep the frames that proveStart compares.
func (c *chunkCut) firstFilters() string {
	return c.decodedTrim() + ",trim=end_frame=8"
}

func (c *chunkCut) decodedTrim() string {
	limits := ""
	if c.hasFramesBefore() {
		limits += fmt.Sprintf(":start_pts=%d", c.chunk().Source)
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
	if c.hasFramesBefore() {
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

func (c *chunkCut) keyframeOffset() float64 {
	if c == nil {
		return 0
	}
	return c.outputStart()
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

// rateArgs begin a chunk with a half-full rate buffer, because the chunk before has used some of it. x264 would
// begin with a full one and spend more than the rung's bitrate.
func (c *chunkCut) rateArgs(r Rung) []string {
	if !c.hasFramesBefore() {
		return nil
	}
	return []string{"-rc_init_occupancy", strconv.Itoa(r.VideoBitrate)} // the buffer has two seconds
}

func (c *chunkCut) hlsArgs(folder string) []string {
	if c == nil {
		return hlsArgs(folder, segmentSeconds)
	}
	first := []string{"-start_number", strconv.Itoa(c.chunk().Segment)}
	return append(first, hlsArgs(folder, c.chunk().SegmentTime)...)
}

// stitchable is libx264 with headers that do not depend on the content.
var stitchable = func() videoEncoder {
	e := libx264
	e.more = []string{"-x264-params", "stitchable=1"}
	return e
}()

func segmentName(n int) string { return fmt.Sprintf(segmentPattern, n) }

func chunkName(n int) string { return "chunk " + strconv.Itoa(n) }
