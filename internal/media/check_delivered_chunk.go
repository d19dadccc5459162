package media

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

// CheckDeliveredChunk is [Tools.CheckDelivered] for one piece of a divided transcode: chunk n of the plan, or all audio
// renditions if n is -1. dir must have only files that [MaxChunkFileBytes] allows.
//
// A chunk must have exactly the frames of the plan, at their times, in its segments; its pictures are compared with
// the source in its middle, and at its start. The plan must be this host's own. The returned ChunkOutput
// says what was planned and measured. Its Settings are those of the plan: whether the worker used them shows only in
// the header, which must be that of the plan.
//
// claimed is the worker's own ChunkOutput, or nil. Of it, only two hints are used: that the source is damaged, which
// is then measured by decoding the piece of the source once more, and that the colours are
// approximate.
func (t Tools) CheckDeliveredChunk(
	ctx context.Context, src string, info *Info, rungs []Rung, plan *ChunkPlan, n int, dir string, claimed *ChunkOutput,
) (*ChunkOutput, error) {
	if len(pieceJobs(info, rungs, plan, n)) == 0 {
		return nil, fmt.Errorf("the plan has no such piece")
	}
	if claimed == nil {
		claimed = &ChunkOutput{}
	}
	t.Preset, t.CRF = plan.Preset, plan.CRF
	u := &deliveryCheck{
		tools: t, info: info, rungs: rungs, dir: dir,
		claimed: &Output{DecodeErrors: claimed.DecodeErrors, Warnings: claimed.Warnings},
	}
	out := &ChunkOutput{Chunk: n}
	check := func(ctx context.Context) error { return u.checkAudioPiece(ctx, plan, out) }
	if n != audioChunk {
		u.cut = &chunkCut{plan: plan, n: n, interlaced: info.Video.Interlaced, starts: info.Video.copyStarts()}
		check = func(ctx context.Context) error { return u.checkChunk(ctx, out) }
	}
	if err := u.do(ctx, src, check); err != nil {
		return nil, err
	}
	return out, nil
}

func (u *deliveryCheck) checkChunk(ctx context.Context, out *ChunkOutput) error {
	delivered, err := readDelivery(u.dir, expectPiece(u.info, u.rungs, u.cut.plan, u.cut.n))
	if err != nil {
		return err
	}
	u.out.DecodedEnd = u.chunkEnd()
	for _, j := range pieceJobs(u.info, u.rungs, u.cut.plan, u.cut.n) {
		if err := u.addChunkRendition(ctx, j, len(delivered[j.dir])); err != nil {
			return err
		}
	}
	c := u.cut.chunk()
	out.Decoded, out.DecodedTimes, out.DecodedEnd, out.Settings = c.Decoded, c.DecodedTimes, u.out.DecodedEnd,
		u.tools.chunkSettings()
	if u.info.Video.colours().needsZscale() && (!u.found.zscale || slices.Contains(u.claimed.Warnings, approximateColours)) {
		out.Warnings = append(out.Warnings, approximateColours)
	}
	if u.claimed.DecodeErrors > 0 {
		if err := u.measureChunk(ctx, out); err != nil {
			return err
		}
	}
	return u.compare(ctx)
}

// chunkEnd is when the last decoded frame of the chunk ends, in seconds.
func (u *deliveryCheck) chunkEnd() float64 {
	next := u.cut.next()
	if next == nil {
		return u.info.pictureEnd()
	}
	base := u.cut.plan.TimeBase
	return float64(next.Source)*float64(base[0])/float64(base[1]) - u.plan.offset
}

// addChunkRendition reads a rendition of the chunk, compares its frames with the plan, and writes its header.
func (u *deliveryCheck) addChunkRendition(ctx context.Context, j renditionJob, segments int) error {
	if segments == 0 {
		return refuse(j.dir, "it is missing")
	}
	if len(u.video) > 0 && len(u.video[0].files.segments) != segments {
		return refuse(j.dir, "it has %d segments, but another rendition %d", segments, len(u.video[0].files.segments))
	}
	folder := filepath.Join(u.dir, j.dir)
	init := filepath.Join(folder, initName)
	p, err := u.checkForm(j, u.cut.chunk().Segment, segments)
	if err != nil {
		return refuseContent(j.dir, err)
	}
	editStart, err := u.cut.readTimes(folder, p)
	if err != nil {
		return refuseContent(j.dir, err)
	}
	if err := writeInit(init, j, u.info, u.plan, editStart); err != nil {
		return refuseContent(j.dir, err)
	}
	s, err := u.tools.readListed(ctx, folder, p)
	if err != nil {
		return refuseContent(j.dir, err)
	}
	if err = u.cut.plan.checkHeader(j.rung.Name, s); err == nil {
		err = u.tools.checkSamples(ctx, folder, s)
	}
	if err != nil {
		return refuseContent(j.dir, err)
	}
	last := s.segments[segments-1]
	end := s.shownAt(last.lastPTS + last.lastDuration)
	if u.cut.next() == nil && math.Abs(end-u.out.DecodedEnd) > durationTolerance(u.info, u.out) {
		return refuse(j.dir, "it ends at %.3f s, but the source at %.3f s", end, u.out.DecodedEnd)
	}
	u.video = append(u.video, writtenRendition{j, s})
	return nil
}

// measureChunk counts the errors of the source's decoder.
func (u *deliveryCheck) measureChunk(ctx context.Context, out *ChunkOutput) (err error) {
	end := int64(math.MaxInt64 / 2)
	if next := u.cut.next(); next != nil {
		end = next.Source
	}
	if out.DecodeErrors, err = u.tools.countErrors(ctx, u.source, u.info, u.cut, u.found, end); err != nil {
		return err
	}
	err = u.tools.subtractErrorsBefore(ctx, u.source, u.info, u.cut, u.found, out)
	u.out.DecodeErrors = out.DecodeErrors
	return err
}

// checkAudioPiece checks the audio renditions.
func (u *deliveryCheck) checkAudioPiece(ctx context.Context, plan *ChunkPlan, out *ChunkOutput) error {
	delivered, err := readDelivery(u.dir, expectPiece(u.info, u.rungs, plan, audioChunk))
	if err != nil {
		return err
	}
	for _, j := range pieceJobs(u.info, u.rungs, plan, audioChunk) {
		if err := u.addRendition(ctx, j, len(delivered[j.dir])); err != nil {
			return err
		}
	}
	defer func() { out.Copies, out.Audio, out.Warnings = u.out.Video, u.out.Audio, u.out.Warnings }()
	v := u.info.Video
	u.out.Expected, u.out.DecodedEnd, u.out.FrameTimes = v.Frames, u.info.pictureEnd(), v.FrameTimes
	if u.claimed.DecodeErrors > 0 {
		if err := u.measureSource(ctx); err != nil {
			return err
		}
		out.DecodeErrors = u.out.DecodeErrors
	}
	if len(u.audio)+len(u.video) == 0 {
		return nil // this host cannot decode it either
	}
	if err := u.tools.checkRenditions(ctx, u.info, u.dir, u.out); err != nil {
		return refuseMismatch(err)
	}
	return u.compare(ctx)
}
