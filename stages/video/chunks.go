package video

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// chunkSpec says what a part of the transcode makes: the whole, all audio renditions, or one chunk
// of the picture.
type chunkSpec struct {
	Makes  string `json:"makes"`            // "whole", "audio" or "chunk"
	Chunk  int    `json:"chunk,omitempty"`  // its number, from 0
	Reason string `json:"reason,omitempty"` // why it is the whole
	// Only are the names of the rungs to make; empty: all. The join adds those of the transcode Before, which one part
	// has.
	Only   []string   `json:"only,omitempty"`
	Before *Transcode `json:"before,omitempty"`
}

// piece is the number that media.ChunkOutput has for it.
func (s chunkSpec) piece() int {
	if s.Makes == makesAudio {
		return -1
	}
	return s.Chunk
}

const makesWhole, makesAudio, makesChunk = "whole", "audio", "chunk"

// Chunk is the result of a part of the transcode.
type Chunk struct {
	// Dir holds its files, relative to the task's directory.
	Dir string `json:"dir,omitempty"`
	// Output describes them.
	Output *media.ChunkOutput `json:"output,omitempty"`
	// Whole is set instead if the part made the whole transcode, and Indivisible if the part found out that
	// the source cannot be divided.
	Whole       *Transcode `json:"whole,omitempty"`
	Indivisible string     `json:"indivisible,omitempty"`
	// Only and Before are those of the spec.
	Only   []string   `json:"only,omitempty"`
	Before *Transcode `json:"before,omitempty"`
	// Failed are the renditions that the last attempt could not make. They are left out of the whole video.
	Failed []FailedRendition `json:"failed,omitempty"`
	// Sent is how many files a remote worker has sent.
	Sent int `json:"sent,omitempty"`
}

// planChunks says how to divide the transcode of a source.
func (c Config) planChunks(
	ctx context.Context, job *stages.Job, file string, info *media.Info, packets *media.Packets, rungs []media.Rung,
) (*media.ChunkPlan, error) {
	if c.ChunkLength < 0 {
		return &media.ChunkPlan{Reason: "the ingesting process divides no transcode"}, nil
	}
	return c.tools(job, -1, "planning chunks").PlanChunks(ctx, file, info, packets, rungs, media.ChunkOptions{
		Length: c.ChunkLength, MinDuration: c.MinDivided,
	})
}

// divideTranscode makes a part of each chunk and one of the sound, or one of the whole.
func divideTranscode(ctx context.Context, job *stages.Job) ([]stages.Part, error) {
	in, err := stages.Result[Ingest](ctx, job, ingestStage)
	if err != nil {
		return nil, err
	}
	only, before, err := in.selectedRungs(ctx, job)
	if err == nil && len(only) == 0 {
		only, err = in.earlyRungs(ctx, job)
	}
	return in.parts(only, before), err
}

// parts are those of a transcode that makes only some rungs and keeps those of the one before; by default all.
func (in Ingest) parts(only []string, before *Transcode) []stages.Part {
	whole := chunkSpec{Makes: makesWhole, Only: only, Before: before}
	rungs := whole.rungs(in)
	undivided := slices.DeleteFunc(slices.Clone(rungs), func(r media.Rung) bool { return !r.IsUndivided() })
	switch {
	case in.Chunks == nil:
		whole.Reason = "the source was ingested by an older version"
	case len(in.Chunks.Chunks) == 0:
		whole.Reason = in.Chunks.Reason
	case len(undivided) == len(rungs):
		whole.Reason = "its picture is copied"
	}
	if whole.Reason != "" {
		return []stages.Part{{Spec: whole}}
	}
	var parts []stages.Part
	if len(undivided) > 0 {
		parts = append(parts, stages.Part{Spec: chunkSpec{Makes: makesAudio, Only: only}}) // it takes the longest
	}
	for n := range in.Chunks.Chunks {
		parts = append(parts, stages.Part{Spec: chunkSpec{Makes: makesChunk, Chunk: n, Only: only, Before: before}})
		before = nil
	}
	return parts
}

// transcodePart does one part.
func (c Config) transcodePart(ctx context.Context, job *stages.Job) (Chunk, error) {
	spec, err1 := stages.Spec[chunkSpec](job)
	in, err2 := stages.Result[Ingest](ctx, job, ingestStage)
	if err := errors.Join(err1, err2); err != nil {
		return Chunk{}, err
	}
	if spec.Makes != makesWhole {
		return c.transcodeChunk(ctx, job, in, spec)
	}
	tr, err := c.transcode(ctx, job, in, spec)
	tr.Undivided = spec.Reason
	return Chunk{Whole: &tr, Only: spec.Only, Before: spec.Before}, err
}

// transcodeChunk makes a chunk, or the sound.
func (c Config) transcodeChunk(ctx context.Context, job *stages.Job, in Ingest, spec chunkSpec) (made Chunk, err error) {
	made.Only, made.Before = spec.Only, spec.Before
	taskDir, source, err := c.findSource(job, in)
	if err != nil {
		return Chunk{}, err
	}
	made.Dir, err = c.inWorkdir(ctx, job, taskDir, chunkPrefix, privateMode, func(job *stages.Job, dir string) error {
		if err := diskspace.Check(dir, in.chunkSize(spec), c.reserve()); err != nil {
			return err
		}
		tools, reporter, rungs := c.Tools, &transcodeReporter{job: job}, spec.rungs(in)
		tools.Step = reporter.step
		if spec.Makes == makesAudio {
			made.Output, err = tools.TranscodeAudio(ctx, source, in.Info, rungs, in.Chunks, dir, reporter.progress)
			return err
		}
		rungs = slices.DeleteFunc(rungs, media.Rung.IsUndivided)
		outputs, failed, err := makeRungs(ctx, job, in, rungs, dir, func(rungs []media.Rung, dir string) (*media.ChunkOutput, error) {
			return tools.TranscodeChunk(ctx, source, in.Info, rungs, in.Chunks, spec.Chunk, dir, reporter.progress)
		})
		if err == nil {
			made.Output, made.Failed = outputs[0], failed
		}
		return err
	})
	if errors.Is(err, media.ErrNotDivisible) {
		return Chunk{Indivisible: err.Error(), Only: spec.Only, Before: spec.Before}, nil
	}
	if err == nil {
		removeOlder(ctx, job, taskDir, filepath.Dir(in.File))
	}
	return made, err
}

// chunkSize is the highest size in bytes of what a part makes. Of the whole, it is that of the published files.
func (in Ingest) chunkSize(spec chunkSpec) int64 {
	rungs, seconds, more := spec.rungs(in), in.Info.Duration, int64(0)
	switch spec.Makes {
	case makesAudio:
		rungs = slices.DeleteFunc(rungs, func(r media.Rung) bool { return !r.IsUndivided() })
	case makesChunk:
		rungs = slices.DeleteFunc(rungs, media.Rung.IsUndivided)
		if in.Chunks != nil && spec.Chunk < len(in.Chunks.Chunks) {
			seconds = in.Chunks.Seconds(spec.Chunk, in.Info)
		}
	default:
		more = in.mp4Size()
	}
	return estimateSize(seconds, rungs) + more
}

// joinTranscode makes a transcode of its parts.
func (c Config) joinTranscode(ctx context.Context, job *stages.Job) (Transcode, error) {
	in, err1 := stages.Result[Ingest](ctx, job, ingestStage)
	made, err2 := stages.PartResults[Chunk](ctx, job)
	if err := errors.Join(err1, err2); err != nil {
		return Transcode{}, err
	}
	for _, chunk := range made {
		switch {
		case chunk.Whole != nil && len(chunk.Only) == 0:
			return *chunk.Whole, nil
		case chunk.Indivisible != "":
			whole := chunkSpec{Makes: makesWhole, Reason: chunk.Indivisible, Only: chunk.Only, Before: transcodeBefore(made)}
			return Transcode{}, stages.DivideAgain([]stages.Part{{Spec: whole}}, nil)
		}
	}
	taskDir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Transcode{}, err
	}
	tr, err := c.joinParts(ctx, job, taskDir, in, made)
	if err == nil && len(made[0].Only) > 0 && transcodeBefore(made) == nil {
		if err := c.publishEarly(ctx, job, taskDir, in, tr); err != nil {
			return tr, err
		}
		return tr, stages.DivideAgain(in.otherParts(&tr), nil)
	}
	if isHostError(err) || ctx.Err() != nil {
		return tr, err
	}
	if errors.Is(err, media.ErrNotDivisible) {
		return tr, stages.DivideAgain([]stages.Part{{Spec: chunkSpec{
			Makes: makesWhole, Reason: err.Error(), Only: made[0].Only, Before: transcodeBefore(made),
		}}}, nil)
	}
	if wrong, ok := errors.AsType[*media.ChunkError](err); ok {
		i := slices.IndexFunc(made, func(chunk Chunk) bool { return chunk.Output.Chunk == wrong.Chunk })
		return tr, divideAgain(made, []int{i}, err)
	}
	if _, ok := errors.AsType[*keptError](err); ok {
		return tr, stages.DivideAgain(in.parts(nil, nil), err)
	}
	return tr, err
}

// joinParts joins the files of the parts, and those of the renditions that are kept.
func (c Config) joinParts(
	ctx context.Context, job *stages.Job, taskDir string, in Ingest, made []Chunk,
) (tr Transcode, err error) {
	tr, pieces, err := partsToJoin(taskDir, in, made)
	if err != nil {
		return Transcode{}, err
	}
	tr.Dir, err = c.inWorkdir(ctx, job, taskDir, transcodeStage, privateMode, func(job *stages.Job, dir string) (err error) {
		if whole := made[0].Whole; whole != nil {
			tr.Output, err = c.linkWhole(ctx, taskDir, dir, whole)
		} else {
			tools := c.tools(job, -1, "joining chunks")
			tr.Output, err = tools.JoinChunks(ctx, in.Info, tr.Rungs, in.Chunks, pieces, dir)
		}
		if err != nil {
			return err
		}
		if before := transcodeBefore(made); before != nil {
			if err := c.addKept(ctx, taskDir, dir, &tr, before); err != nil {
				return &keptError{err}
			}
		}
		err = c.tools(job, -1, "checking").Check(ctx, in.Info, dir, tr.Output)
		if len(tr.Kept) > 0 && errors.Is(err, media.ErrMismatch) {
			err = &keptError{err}
		}
		return err
	})
	if err != nil {
		return Transcode{}, err
	}
	tr.Warnings = tr.warnings()
	return tr, nil
}

// partsToJoin describes the transcode that the parts make, and finds the files of chunks.
func partsToJoin(taskDir string, in Ingest, made []Chunk) (tr Transcode, pieces []media.ChunkPiece, err error) {
	if made[0].Whole != nil {
		return *made[0].Whole, nil, nil
	}
	pieces, lost, err := findChunks(taskDir, made)
	if err != nil {
		return tr, nil, err
	}
	if len(lost) > 0 {
		return tr, nil, divideAgain(made, lost, fmt.Errorf("the files of %d parts are missing", len(lost)))
	}
	tr = Transcode{Rungs: chunkSpec{Only: made[0].Only}.rungs(in), Chunks: len(in.Chunks.Chunks), LastChunk: lastDir(made)}
	tr.setFailed(failedRenditions(made))
	if !slices.ContainsFunc(tr.Rungs, func(r media.Rung) bool { return !r.IsUndivided() }) {
		return tr, nil, divideAgain(made, partsWithFailed(made), fmt.Errorf("no rendition could be made of all chunks"))
	}
	return tr, pieces, nil
}

// divideAgain makes the wrong ones of the parts again.
func divideAgain(made []Chunk, wrong []int, why error) error {
	parts := make([]stages.Part, len(made))
	for i, chunk := range made {
		parts[i].Keep = !slices.Contains(wrong, i)
		spec := chunkSpec{Makes: makesChunk, Chunk: chunk.Output.Chunk, Only: chunk.Only, Before: chunk.Before}
		if chunk.Output.IsAudio() {
			spec = chunkSpec{Makes: makesAudio, Only: chunk.Only}
		}
		parts[i].Spec = spec
	}
	return stages.DivideAgain(parts, why)
}

// findChunks finds the files of the parts, and lists those parts whose files are lost. If all are, they
// are rather on a disk that is not there.
func findChunks(taskDir string, made []Chunk) (pieces []media.ChunkPiece, lost []int, err error) {
	for i, chunk := range made {
		if chunk.Output == nil {
			return nil, nil, fmt.Errorf("the result of part %d has no files", i+1)
		}
		dir, err := findResultDir(taskDir, chunkPrefix, chunk.Dir)
		if isMissing(err) && i+1-len(pieces) < len(made) {
			lost = append(lost, i)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		pieces = append(pieces, media.ChunkPiece{Dir: dir, Output: chunk.Output})
	}
	return pieces, lost, nil
}

// lastDir is the directory of the parts with the highest number.
func lastDir(made []Chunk) (last string) {
	newest := 0
	for _, chunk := range made {
		if d, ok := parseDirName(chunk.Dir); ok && d.number > newest {
			newest, last = d.number, chunk.Dir
		}
	}
	return last
}

// afterChunks is a directory name after those of all parts that were joined; its stage is empty if there are none.
func (t Transcode) afterChunks() dirName {
	d, ok := parseDirName(t.LastChunk)
	if ok {
		d.number++
	}
	return d
}
