package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"
)

// DefaultChunkLength is how much of a source is encoded at once if a transcode is divided.
const DefaultChunkLength = 30 * time.Second

// maxChunks is how many chunks a source has at most: every attempt reads the plan. Those of longer sources are longer.
const maxChunks = 1000

// ErrNotDivisible means that a chunk does not have the frames that its plan expects, or that they depend on what is
// before the keyframe where it begins. The source must be transcoded whole; another attempt would end in the same way.
var ErrNotDivisible = errors.New("the source cannot be divided exactly")

// ChunkOptions say how to divide a transcode.
type ChunkOptions struct {
	// Length is that of a chunk. It is rounded to whole segments, and longer if there would be more than
	// a thousand chunks. Zero means DefaultChunkLength.
	Length time.Duration
	// MinDuration is the shortest source that is divided. It is never less than two chunks.
	MinDuration time.Duration
}

// ChunkPlan says how a transcode is divided. It survives JSON.
type ChunkPlan struct {
	// Reason says why the source is not divided: "it is shorter than two chunks". Then there are no Chunks.
	Reason string `json:"reason,omitempty"`
	// Chunks follow one another without gaps.
	Chunks []Chunk `json:"chunks,omitempty"`
	// TimeBase is the length of a tick of the source's clock, as a fraction of a second. Zero is the tick
	// that ffmpeg takes for zero.
	TimeBase [2]int64 `json:"time_base,omitzero"`
	Zero     int64    `json:"zero,omitempty"`
	// SegmentTicks is after how many ticks of 1/120000 s a segment begins, at the next frame. 0 in plans of older versions: six seconds.
	SegmentTicks int64 `json:"segment_ticks,omitempty"`
	// Head are the times of the first frames of the output.
	Head []int64 `json:"head,omitempty"`
	// Preset and CRF are those of the Tools that made the plan, for rungs that do not say. So all chunks are
	// encoded alike, wherever that is.
	Preset string `json:"preset,omitempty"`
	CRF    int    `json:"crf,omitempty"`
	// Headers are digests of what decoders need of the initialization segments, by rung. They are the same in all
	// chunks, of which any may be published.
	Headers map[string]string `json:"headers,omitempty"`
}

// Chunk is a part of the picture from the start of a segment to the start of another one. Times of output
// frames are in ticks of 1/120000 s.
type Chunk struct {
	// Segment is the number of its first segment, Segments how many it has.
	Segment  int `json:"segment"`
	Segments int `json:"segments"`
	// Start is the time of its first frame. Frames is how many frames every rendition has of it, and Times
	// a digest of their times.
	Start  int64  `json:"start"`
	Frames int64  `json:"frames"`
	Times  string `json:"times"`
	// Source is the time of the first decoded frame, in ticks of the source's clock after its zero; Decoded and
	// DecodedTimes are their number and the digest of their times.
	Source       int64  `json:"source"`
	Decoded      int64  `json:"decoded"`
	DecodedTimes string `json:"decoded_times"`
	// Seek is where ffmpeg begins to decode, in seconds from the start of the file; 0 for its start.
	Seek float64 `json:"seek,omitempty"`
	// Earlier is where it begins one keyframe earlier, to prove that Seek is early enough.
	Earlier float64 `json:"earlier,omitempty"`
	// Lead is the time of the first frame of the lead-in, and LeadSource that of its first decoded frame. The encoder
	// encodes the lead-in, too, so that its rate control is as in the middle of a video, and ffmpeg drops the packets.
	Lead       int64 `json:"lead,omitempty"`
	LeadSource int64 `json:"lead_source,omitempty"`
	// Before are the times of the last frames of the chunk before.
	Before []int64 `json:"before,omitempty"`
	// SegmentTime is the time in seconds after which ffmpeg begins a segment at the next keyframe.
	SegmentTime float64 `json:"segment_time"`
}

// Seconds is how long chunk n lasts.
func (p *ChunkPlan) Seconds(n int, info *Info) float64 {
	end := info.Duration
	if n+1 < len(p.Chunks) {
		end = float64(p.Chunks[n+1].Start) / videoTimescale
	}
	return max(0, end-float64(p.Chunks[n].Start)/videoTimescale)
}

func (p *ChunkPlan) segmentTicks() int64 { return cmp.Or(p.SegmentTicks, segmentTicks) }

// PlanChunks decides whether a transcode can be divided into chunks such that every frame is in exactly one
// of them, at the time that it has in an undivided one. It computes from the packets' timestamps what each chunk
// must contain, and decodes a few frames of the source. If the source cannot be divided, or if that is in doubt,
// the plan has no chunks and a Reason. info and packets are those of [Tools.ProbePackets].
func (t Tools) PlanChunks(
	ctx context.Context, src string, info *Info, packets *Packets, rungs []Rung, o ChunkOptions,
) (*ChunkPlan, error) {
	p, err := t.withStepCounter().planChunks(ctx, src, info, packets, rungs, o)
	if indivisible, ok := errors.AsType[*indivisibleError](err); ok {
		return &ChunkPlan{Reason: indivisible.reason}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("plan chunks: %w", err)
	}
	return p, nil
}

// indivisibleError carries the reason of a plan without chunks.
type indivisibleError struct{ reason string }

func (e *indivisibleError) Error() string { return e.reason }

func (t Tools) planChunks(
	ctx context.Context, src string, info *Info, packets *Packets, rungs []Rung, o ChunkOptions,
) (*ChunkPlan, error) {
	source, err := filepath.Abs(src)
	if err != nil {
		return nil, err
	}
	perChunk := o.segments(info.Duration)
	if reason := indivisible(info, rungs, perChunk, o); reason != "" {
		return nil, &indivisibleError{reason}
	}
	if err := t.checkSoftwareEncoder(ctx, info, rungs); err != nil {
		return nil, err
	}
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
	defer cancel()
	if err := packets.check(); err != nil {
		return nil, err
	}
	times, err := newFrameTimes(info, packets)
	if err != nil {
		return nil, err
	}
	p, err := times.divide(perChunk)
	if err != nil {
		return nil, err
	}
	s := t.encoderSettings(Rung{}, "")
	p.Preset, p.CRF = s.preset, s.crf
	if err = t.trySeeking(ctx, source, info, p, times.decoded); err == nil {
		p.Headers, err = t.chunkHeaders(ctx, source, info, rungs, p)
	}
	return p, err
}

// segments is the number of segments in a chunk.
func (o ChunkOptions) segments(duration float64) int {
	length := o.Length
	if length <= 0 {
		length = DefaultChunkLength
	}
	return max(1, int(math.Round(length.Seconds()/segmentSeconds)), int(math.Ceil(duration/segmentSeconds/maxChunks)))
}

// indivisible says why a source is not divided, as far as that can be said without reading it.
func indivisible(info *Info, rungs []Rung, perChunk int, o ChunkOptions) string {
	v := info.Video
	video, _ := dividedJobs(info, rungs)
	if v == nil || len(video) == 0 {
		return "it has no picture, or none to encode"
	}
	switch {
	case info.Duration < float64(2*perChunk*segmentSeconds):
		return "it is shorter than two chunks"
	case info.Duration < o.MinDuration.Seconds():
		return fmt.Sprintf("it is shorter than %v", o.MinDuration)
	case v.Alpha:
		return "it is transparent"
	}
	return uncertainTimes(info)
}

// uncertainTimes says why the times of the output's frames cannot be computed from the packets.
func uncertainTimes(info *Info) string {
	v, plan := info.Video, planTiming(info)
	switch {
	case !slices.Contains(seekableContainers, info.Container):
		return fmt.Sprintf("ffmpeg cannot seek exactly in its container %q", info.Container)
	case plan.repeatedFrames > 0:
		return "frames are repeated in it"
	case v.Undecodable > 0:
		return "its first frames cannot be decoded"
	case v.Skipped > 0 || info.Joins != nil:
		return "its timestamps jump"
	case v.Telecined:
		return "it is a telecined film"
	case plan.dropsFrames && v.Interlaced:
		return "it is interlaced and frames are left out of it"
	}
	return ""
}

// seekableContainers have an index or keyframe flags, and timestamps that do not depend on where reading began.
var seekableContainers = []string{"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "avi", "flv"}

// checkSoftwareEncoder refuses to divide what a hardware encoder would encode here: it is fast, its headers may
// depend on the card, and one that fails half-way would leave chunks of two encoders.
func (t Tools) checkSoftwareEncoder(ctx context.Context, info *Info, rungs []Rung) error {
	video, audio := dividedJobs(info, rungs)
	c, err := t.capabilities(ctx, slices.Concat(video, audio)...)
	if err != nil {
		return err
	}
	e, _, err := t.chooseEncoder(video, c)
	if err == nil && e.isHardware() {
		return &indivisibleError{"the hardware encoder " + e.name + " makes it"}
	}
	return err
}
