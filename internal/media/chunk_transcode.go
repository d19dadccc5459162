package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// ChunkOutput describes what [Tools.TranscodeChunk] or [Tools.TranscodeAudio] wrote. It survives JSON.
type ChunkOutput struct {
	// Chunk is the number of the chunk; -1 is the audio, and the copy.
	Chunk int `json:"chunk"`
	// Decoded is the number of decoded frames, DecodedTimes a digest of their timestamps. DecodedEnd is where the
	// last one ends, in seconds.
	Decoded      int64   `json:"decoded,omitempty"`
	DecodedTimes string  `json:"decoded_times,omitempty"`
	DecodedEnd   float64 `json:"decoded_end,omitempty"`
	// DecodeErrors counts ffmpeg's error messages about the source.
	DecodeErrors int64 `json:"decode_errors,omitempty"`
	// Settings are those of the encoder, which must be the same for all chunks.
	Settings string `json:"settings,omitempty"`
	// Audio are the finished audio renditions, Copies those with the picture of the source.
	Audio  []Rendition `json:"audio,omitempty"`
	Copies []Rendition `json:"copies,omitempty"`
	// Warnings are sentences about oddities that do not prevent publishing.
	Warnings []string `json:"warnings,omitempty"`
}

// IsAudio reports whether it describes the audio renditions.
func (o *ChunkOutput) IsAudio() bool { return o.Chunk == audioChunk }

// audioChunk is the number of the piece that has all audio renditions.
const audioChunk = -1

// TranscodeChunk makes all video renditions of chunk n of a plan in one run of ffmpeg that decodes the chunk
// once. dir must exist, be empty and belong to this attempt alone. TranscodeChunk writes one directory per rendition,
// with an initialization segment and the segments as they are published, under their final names. If it fails
// or is killed, the content of dir is useless.
//
// The encoders are always those in software, with headers that do not depend on the content. An error that wraps
// [ErrNotDivisible] means that the chunk does not have the planned frames, or not the pictures of the source, or not those that it has
// if decoding begins one keyframe earlier, or not the planned headers, because the plan was made with another version of the encoder.
func (t Tools) TranscodeChunk(
	ctx context.Context, src string, info *Info, rungs []Rung, plan *ChunkPlan, n int, dir string,
	progress func(Progress),
) (*ChunkOutput, error) {
	out, err := t.withStepCounter().transcodeChunk(ctx, src, info, rungs, plan, n, dir, progress)
	if err != nil {
		return nil, fmt.Errorf("transcode %s: %w", chunkName(n), err)
	}
	return out, nil
}

func (t Tools) transcodeChunk(
	ctx context.Context, src string, info *Info, rungs []Rung, plan *ChunkPlan, n int, dir string,
	progress func(Progress),
) (*ChunkOutput, error) {
	source, err := filepath.Abs(src)
	if err != nil {
		return nil, err
	}
	video, _ := dividedJobs(info, rungs)
	if n < 0 || n >= len(plan.Chunks) || info.Video == nil || len(video) == 0 {
		return nil, fmt.Errorf("the plan has no such chunk")
	}
	c, err := t.capabilities(ctx, video...)
	if err != nil {
		return nil, err
	}
	if err := createRenditionDirs(dir, video); err != nil {
		return nil, err
	}
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds()) // the seek may be far from the chunk
	defer cancel()
	r := transcodeRun{
		tools: t, source: source, dir: dir, info: info, video: video, plan: planTiming(info), found: c, progress: progress,
	}
	r.tools.Preset, r.tools.CRF = plan.Preset, plan.CRF
	r.plan.cut = newChunkCut(plan, n, info, c, video)
	return r.encodeChunk(ctx)
}

func (r transcodeRun) encodeChunk(ctx context.Context) (*ChunkOutput, error) {
	cut := r.plan.cut
	reader := newProgressReader(cut.plan.Seconds(cut.n, r.info), r.progressOf(stitchable), time.Now)
	reader.total = cut.chunk().Decoded
	report, err := r.tools.run(ctx, command{
		tool: "ffmpeg", purpose: "transcode chunk", dir: r.dir, source: r.source, stdout: reader,
		args: r.tools.transcodeArgs(r.source, r.info, r.video, nil, r.plan, r.found, stitchable, nil),
	})
	if err != nil {
		return nil, report.preferDiskError(err)
	}
	out := &ChunkOutput{Chunk: cut.n, DecodeErrors: report.errors, Settings: r.tools.chunkSettings()}
	if err := r.tools.subtractErrorsBefore(ctx, r.source, r.info, cut, r.found, out); err != nil {
		return nil, err
	}
	if !r.found.zscale && r.info.Video.colours().needsZscale() {
		out.Warnings = append(out.Warnings, approximateColours)
	}
	shown, first, err := r.readChunkLists(out)
	if err != nil {
		return nil, report.preferDiskError(err)
	}
	if cut.hasFramesBefore() && cut.chunk().Seek > 0 {
		if err := r.proveStart(ctx, first); err != nil {
			return nil, err
		}
	}
	for _, j := range r.video {
		if err := r.finishChunk(ctx, j, shown); err != nil {
			return nil, report.preferDiskError(fmt.Errorf("%s: %w", j.dir, err))
		}
	}
	if out.DecodeErrors > 0 {
		return out, nil
	}
	err = r.checkPictures(ctx, func(j renditionJob) (*renditionFiles, error) {
		return r.tools.readChunk(ctx, filepath.Join(r.dir, j.dir))
	})
	if errors.Is(err, ErrMismatch) {
		err = fmt.Errorf("%w: %w", ErrNotDivisible, err)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// readChunk reads the segments of a chunk, which have no playlist.
func (t Tools) readChunk(ctx context.Context, dir string) (*renditionFiles, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	p := &playlist{init: initName}
	for _, e := range entries {
		if segmentNumber(e.Name()) >= 0 {
			p.segments = append(p.segments, playlistEntry{name: e.Name()})
		}
	}
	return t.readListed(ctx, dir, p)
}

// chunkSettings names the encoder and its settings.
func (t Tools) chunkSettings() string {
	s := t.encoderSettings(Rung{}, "")
	return fmt.Sprintf("%s %s crf %d", stitchable.name, s.preset, s.crf)
}

// subtractErrorsBefore subtracts the errors that the decoder reported before the chunk's first frame.
func (t Tools) subtractErrorsBefore(
	ctx context.Context, source string, info *Info, cut *chunkCut, c capabilities, out *ChunkOutput,
) error {
	if out.DecodeErrors == 0 || cut.chunk().Seek == 0 {
		return nil
	}
	before, err := t.countErrors(ctx, source, info, cut, c, cut.chunk().Source)
	out.DecodeErrors = max(0, out.DecodeErrors-before)
	return err
}

// readChunkLists compares the frames from the decoder and those for the encoders with the plan, and removes their
// lists. It returns the times of the latter, and the list of the first decoded frames.
func (r transcodeRun) readChunkLists(out *ChunkOutput) (shown []int64, first *frameListReader, err error) {
	c := r.plan.cut.chunk()
	names := []string{decodedFrames, encodedFrames}
	if r.plan.cut.hasFramesBefore() {
		names = append(names, firstFrames)
	}
	lists := make([]*frameListReader, 3)
	for i, name := range names {
		if lists[i], err = readFrameTimes(filepath.Join(r.dir, name)); err != nil {
			return nil, nil, err
		}
		if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
			return nil, nil, fmt.Errorf("remove frame list: %w", err)
		}
	}
	decoded, encoded, first := lists[0], lists[1], lists[2]
	out.Decoded, out.DecodedTimes = decoded.frames, digestTimes(decoded.times)
	out.DecodedEnd = r.plan.cut.decodedEnd(decoded) - r.plan.offset
	if err := decoded.compare("decoded", c.Decoded, c.DecodedTimes); err != nil {
		return nil, nil, err
	}
	return encoded.times, first, encoded.compare("shown", c.Frames, c.Times)
}

func readFrameTimes(file string) (*frameListReader, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read frame list: %w", err)
	}
	defer f.Close()
	r := newFrameListReader()
	r.keep = true
	if _, err := io.Copy(r, f); err != nil {
		return nil, fmt.Errorf("read frame list: %w", err)
	}
	return r, nil
}

// compare compares a frame list with a plan.
func (r *frameListReader) compare(what string, frames int64, times string) error {
	switch {
	case r.frames != frames:
		return fmt.Errorf("%w: %d frames were %s instead of %d", ErrNotDivisible, r.frames, what, frames)
	case digestTimes(r.times) != times:
		return fmt.Errorf("%w: the times of the %d frames that were %s differ from those of the packets", ErrNotDivisible,
			r.frames, what)
	}
	return nil
}

// finishChunk fixes the segments of a rendition, and removes its playlist, which describes only the chunk.
func (r transcodeRun) finishChunk(ctx context.Context, j renditionJob, shown []int64) error {
	dir := filepath.Join(r.dir, j.dir)
	s := chunkSegments{cut: r.plan.cut, shown: shown, dir: dir}
	editStart, err := s.fix()
	if err != nil {
		return err
	}
	if j.rung.Codec == av1Codec {
		if err := setSequenceHeader(filepath.Join(dir, initName), filepath.Join(dir, segmentName(r.plan.cut.chunk().Segment))); err != nil {
			return fmt.Errorf("set sequence header: %w", err)
		}
	}
	if err := writeInit(filepath.Join(dir, initName), j, r.info, r.plan, editStart); err != nil {
		return fmt.Errorf("write initialization segment: %w", err)
	}
	var header renditionFiles
	if err := header.readInit(filepath.Join(dir, initName)); err != nil {
		return fmt.Errorf("initialization segment: %w", err)
	}
	if err := r.plan.cut.plan.checkHeader(j.rung.Name, &header); err != nil {
		return fmt.Errorf("%w: %w", ErrNotDivisible, err)
	}
	playlist := path.Join(j.dir, playlistName)
	if r.plan.cut.next() == nil {
		last, err := r.tools.inspect(ctx, r.dir, playlist)
		if err != nil {
			return err
		}
		if err := last.mergeShortTail(dir); err != nil {
			return err
		}
	}
	return os.Remove(filepath.Join(dir, playlistName))
}

// TranscodeAudio makes all audio renditions of a divided transcode, and the copy, complete and with their playlists. Encoded in
// chunks, sound would have gaps. dir must exist, be empty and belong to this attempt alone.
func (t Tools) TranscodeAudio(
	ctx context.Context, src string, info *Info, rungs []Rung, plan *ChunkPlan, dir string, progress func(Progress),
) (*ChunkOutput, error) {
	out, err := t.withStepCounter().transcodeAudio(ctx, src, info, rungs, plan, dir, progress)
	if err != nil {
		return nil, fmt.Errorf("transcode audio: %w", err)
	}
	return out, nil
}

func (t Tools) transcodeAudio(
	ctx context.Context, src string, info *Info, rungs []Rung, chunks *ChunkPlan, dir string, progress func(Progress),
) (*ChunkOutput, error) {
	source, err := filepath.Abs(src)
	if err != nil {
		return nil, err
	}
	video, audio := renditionJobs(info, rungs)
	copies := slices.DeleteFunc(video, func(j renditionJob) bool { return !isCopy(j) })
	jobs := slices.Concat(copies, audio)
	if len(chunks.Chunks) == 0 || len(jobs) == 0 {
		return nil, fmt.Errorf("the plan has no chunks, or the ladder no rung for the audio of this source")
	}
	c, err := t.capabilities(ctx, jobs...)
	if err != nil {
		return nil, err
	}
	if err := createRenditionDirs(dir, jobs); err != nil {
		return nil, err
	}
	ctx, cancel := t.withTimeLimit(ctx, info.decodedSeconds())
	defer cancel()
	r := transcodeRun{
		tools: t, source: source, dir: dir, info: info, video: copies, audio: audio, plan: planTiming(info), found: c, progress: progress,
	}
	return r.makeUndivided(ctx)
}

// makeUndivided makes copies and audio renditions.
func (r transcodeRun) makeUndivided(ctx context.Context) (*ChunkOutput, error) {
	if err := r.writeCopies(ctx); err != nil {
		return nil, notDivisible(ctx, err)
	}
	var report stderrReport
	if len(r.audio) > 0 {
		var err error
		report, err = r.run(ctx, command{
			tool: "ffmpeg", purpose: "transcode audio", dir: r.dir, source: r.source,
			args:   r.tools.transcodeArgs(r.source, r.info, nil, r.audio, r.plan, r.found, libx264, nil),
			stdout: newProgressReader(r.info.Duration, r.progress, time.Now),
		})
		if err != nil {
			return nil, report.preferDiskError(err)
		}
	}
	o := &Output{Warnings: []string{}}
	if err := r.collectUndivided(ctx, o, report); err != nil {
		return nil, report.preferDiskError(err)
	}
	if err := r.checkPictures(ctx, func(j renditionJob) (*renditionFiles, error) { return r.inspect(ctx, j) }); err != nil {
		return nil, notDivisible(ctx, err)
	}
	if err := r.soundCheck().run(ctx, r.dir, o); err != nil {
		return nil, err
	}
	return &ChunkOutput{
		Chunk: audioChunk, DecodeErrors: report.errors, Audio: o.Audio, Copies: o.Video, Warnings: o.Warnings,
	}, nil
}

// notDivisible returns an error about a copy. If the host is not to blame, the source must be transcoded whole.
func notDivisible(ctx context.Context, err error) error {
	if ctx.Err() == nil && isEncoderFailure(err) {
		return fmt.Errorf("%w: %w", ErrNotDivisible, err)
	}
	return err
}

// collectUndivided measures the copy and the audio renditions. One of these that cannot be decoded is left out, as in an undivided
// transcode.
func (r transcodeRun) collectUndivided(ctx context.Context, o *Output, report stderrReport) error {
	for _, j := range slices.Concat(r.video, r.audio) {
		made, err := r.tools.finishRendition(ctx, r.dir, j, r.info, r.plan)
		switch {
		case err == nil && j.audio == nil:
			o.Video = append(o.Video, made)
		case j.audio != nil && (errors.Is(err, os.ErrNotExist) || errors.Is(err, errEmptyRendition)) && report.diskError == nil:
			err = o.removeRendition(r.dir, j)
		case err == nil:
			o.Audio = append(o.Audio, made)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
