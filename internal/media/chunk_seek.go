package media

import (
	"context"
	"fmt"
	"slices"
)

// triedSeeks is how many chunks PlanChunks tries to find, and triedFrames how many frames of each it decodes: more
// than VP8 has between two hidden frames, which are packets that give no frame.
const triedSeeks, triedFrames = 4, 30

// trySeeking decodes the first frames of some chunks. A source in which ffmpeg does not find them is not divided.
func (t Tools) trySeeking(ctx context.Context, source string, info *Info, p *ChunkPlan, decoded []int64) error {
	c, err := t.capabilities(ctx, true, false)
	if err != nil {
		return err
	}
	tried := -1
	for i := range triedSeeks {
		n := i * (len(p.Chunks) - 1) / (triedSeeks - 1)
		if n == tried {
			continue
		}
		tried = n
		cut := &chunkCut{plan: p, n: n}
		from, _ := slices.BinarySearch(decoded, cut.chunk().Source)
		to := min(from+triedFrames, len(decoded)-1)
		times, _, err := t.decodeUntil(ctx, source, info, cut, c, decoded[to])
		if err != nil {
			return err
		}
		first, _ := slices.BinarySearch(times, decoded[from])
		if !slices.Equal(times[first:], decoded[from:to]) {
			return &indivisibleError{"not every packet of it gives a frame after seeking"}
		}
	}
	return nil
}

// decodeUntil decodes from where a chunk seeks to, until a frame in ticks after zero. It returns the times of the
// frames before that one, and how many errors the decoder reported. A decoder that begins in an open group of
// pictures reports the frames that refer to earlier ones, although the source is sound.
func (t Tools) decodeUntil(
	ctx context.Context, source string, info *Info, cut *chunkCut, c capabilities, end int64,
) (times []int64, errors int64, err error) {
	list := newFrameListReader()
	list.keep = true
	t.Threads = 1 // more threads would decode more frames
	args := t.ffmpegArgs("-max_error_rate", "1")
	if !c.fpsMode {
		args = append(args, "-vsync", "passthrough")
	}
	args = append(args, input(source, append(probedInputOptions(info, c.decoders), cut.inputOptions()...)...)...)
	args = append(args, "-filter_complex",
		fmt.Sprintf("[0:%d]setpts=PTS-(%d),trim=end_pts=%d[frames]", info.Video.Index, cut.plan.Zero, end), "-map", "[frames]")
	args = append(append(args, fpsModeArgs("passthrough", c)...),
		"-enc_time_base", cut.decodedTimeBase(), "-c:v", "wrapped_avframe", "-flush_packets", "1", "-f", "framecrc", "-")
	report, err := t.run(ctx, command{tool: "ffmpeg", purpose: "find chunk", args: args, source: source, stdout: list})
	_, err = exitBySource(err)
	return list.times, report.errors, err
}
