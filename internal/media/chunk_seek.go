package media

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// triedSeeks is how many chunks PlanChunks tries to find, and triedFrames how many frames of each it decodes: more
// than VP8 has between two hidden frames, which are packets that give no frame.
const triedSeeks, triedFrames = 4, 30

// errWrongStart means that the keyframe to which a chunk seeks is none, or that the chunk needs what is before it.
var errWrongStart = errors.New("after seeking to a keyframe of it, frames are missing or wrong")

// fromIntraFrame drops the frames before the first that the decoder calls a keyframe or an intra frame. Containers
// may mark frames as keyframes that are none; then most decoders give grey pictures without an error. That of H.264
// gives none, and does not say where a gradual refresh begins.
func fromIntraFrame(v *Video) string {
	if v.Codec == "h264" {
		return ""
	}
	return `select='key+eq(pict_type\,PICT_TYPE_I)+gt(selected_n\,0)',`
}

// trySeeking decodes the first frames of some chunks. A source in which ffmpeg does not find them is not divided.
func (t Tools) trySeeking(ctx context.Context, source string, info *Info, p *ChunkPlan, decoded []int64) error {
	c, err := t.capabilities(ctx)
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
		filters := fmt.Sprintf("%strim=start_pts=%d:end_pts=%d", fromIntraFrame(info.Video), decoded[from], decoded[to])
		list, _, err := t.decodeFrom(ctx, source, info, cut, c, cut.chunk().Seek, filters, "wrapped_avframe")
		if err != nil {
			return err
		}
		if !slices.Equal(list.times, decoded[from:to]) {
			return &indivisibleError{errWrongStart.Error()}
		}
	}
	return nil
}

// proveStart compares the first pictures of a chunk with those that are decoded from one keyframe earlier. If they
// are the same, the chunk needs nothing before the keyframe with which its own decoder began.
func (r transcodeRun) proveStart(ctx context.Context, first *frameListReader) error {
	cut := r.plan.cut
	filters := fromIntraFrame(r.info.Video) + cut.firstFilters()
	want, _, err := r.tools.decodeFrom(ctx, r.source, r.info, cut, r.found, cut.chunk().Earlier, filters, "rawvideo")
	if err != nil {
		return err
	}
	if len(want.times) == 0 || !slices.Equal(first.times, want.times) || !slices.Equal(first.sums, want.sums) {
		return fmt.Errorf("%w: %w", ErrNotDivisible, errWrongStart)
	}
	return nil
}

// countErrors counts the errors of the decoder from where a chunk seeks to, until a frame in ticks after zero. A
// decoder that begins in an open group of pictures reports the frames that refer to earlier ones, although the source
// is sound.
func (t Tools) countErrors(
	ctx context.Context, source string, info *Info, cut *chunkCut, c capabilities, end int64,
) (int64, error) {
	_, errors, err := t.decodeFrom(ctx, source, info, cut, c, cut.chunk().Seek, fmt.Sprintf("trim=end_pts=%d", end),
		"wrapped_avframe")
	return errors, err
}

// decodeFrom decodes from where ffmpeg seeks to. It lists the frames that the filters leave, and counts the errors
// that the decoder reported.
func (t Tools) decodeFrom(
	ctx context.Context, source string, info *Info, cut *chunkCut, c capabilities, seek float64, filters, encoder string,
) (list *frameListReader, errors int64, err error) {
	list = newFrameListReader()
	list.keep = true
	t.Threads = 1 // more threads would decode more frames
	args := t.ffmpegArgs("-max_error_rate", "1")
	if !c.fpsMode {
		args = append(args, "-vsync", "passthrough")
	}
	options := append(probedInputOptions(info, c.decoders), "-noautorotate", "-reinit_filter:v", "0")
	args = append(args, input(source, append(options, seekOptions(seek)...)...)...)
	args = append(args, "-filter_complex",
		fmt.Sprintf("[0:%d]setpts=PTS-(%d),%s[frames]", info.Video.Index, cut.plan.Zero, filters), "-map", "[frames]")
	args = append(append(args, fpsModeArgs("passthrough", c)...),
		"-enc_time_base", cut.decodedTimeBase(), "-c:v", encoder, "-flush_packets", "1", "-f", "framecrc", "-")
	report, err := t.run(ctx, command{tool: "ffmpeg", purpose: "find chunk", args: args, source: source, stdout: list})
	_, err = exitBySource(err)
	return list, report.errors, err
}
