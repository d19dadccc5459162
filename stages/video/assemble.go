package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// Assemble is the result of the assemble stage.
type Assemble struct {
	// Dir holds all that is published, relative to the task's directory.
	Dir string `json:"dir"`
	// Files and Bytes are how much that is.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Storyboard is the one that is published; nil if there is no picture.
	Storyboard *media.Storyboard `json:"storyboard,omitempty"`
}

// Assemble is the stage that brings the renditions and the description
// together, writes master.m3u8 and manifest.mpd, and checks the whole against
// the source as it lies on disk.
func (c Config) Assemble() stages.Stage {
	return stages.Stage{
		Name: assembleStage, Needs: []string{transcodeStage, metadataStage}, Workers: cmp.Or(c.Workers.Assemble, 2),
		Stall: c.stall(),
		Work: work(c, func(ctx context.Context, job *stages.Job) (Assemble, error) {
			in, err1 := stages.Result[Ingest](ctx, job, ingestStage)
			tr, err2 := stages.Result[Transcode](ctx, job, transcodeStage)
			md, err3 := stages.Result[Metadata](ctx, job, metadataStage)
			if err := errors.Join(err1, err2, err3); err != nil {
				return Assemble{}, err
			}
			return c.assemble(ctx, job, in, tr, md)
		}),
	}
}

func (c Config) assemble(ctx context.Context, job *stages.Job, in Ingest, tr Transcode, md Metadata) (Assemble, error) {
	dir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Assemble{}, err
	}
	renditions, err := findResultDir(dir, transcodeStage, tr.Dir)
	if err != nil {
		return Assemble{}, err
	}
	description, err := findResultDir(dir, metadataStage, md.Dir)
	if err != nil {
		return Assemble{}, err
	}
	w, err := newWorkdir(ctx, job, dir, assembleStage, servedMode)
	if err != nil {
		return Assemble{}, err
	}
	defer w.discard()
	job = w.withTouch(job)

	linking := reportSteps(job, -1, "linking")
	l := linker{need: tr.Output.Bytes, reserve: c.reserve(), onFile: func(done treeSize) { linking(int64(done.files)) }}
	if err := l.add(ctx, renditions, w.path, servedMode); err != nil {
		return Assemble{}, fmt.Errorf("bring files together: %w", err)
	}
	board, err := c.storyboard(ctx, job, w.path, in, tr, md)
	if err != nil {
		return Assemble{}, err
	}
	if err := l.add(ctx, description, w.path, servedMode); err != nil {
		return Assemble{}, fmt.Errorf("bring files together: %w", err)
	}
	if err := completeMetadata(w.path, tr, md, board); err != nil {
		return Assemble{}, err
	}
	if err := c.checkAndWriteManifests(ctx, job, w.path, in, tr, board); err != nil {
		return Assemble{}, err
	}
	size, err := measureTree(w.path, reportSteps(job, -1, "counting").counter())
	if err != nil {
		return Assemble{}, err
	}
	name, err := w.finish(ctx, job)
	if err != nil {
		return Assemble{}, err
	}
	removeOlder(ctx, job, dir, tr.Dir)
	removeOlder(ctx, job, dir, md.Dir)
	return Assemble{Dir: name, Files: size.files, Bytes: size.bytes, Storyboard: board}, nil
}

// storyboard is that of transcode, or that of a version in which stage metadata made
// it, or else, where transcode is of that version and metadata is not, one that is
// made here.
func (c Config) storyboard(
	ctx context.Context, job *stages.Job, dir string, in Ingest, tr Transcode, md Metadata,
) (*media.Storyboard, error) {
	switch {
	case md.Storyboard != nil:
		return md.Storyboard, os.RemoveAll(filepath.Join(dir, storyboardDir)) // it comes with the description
	case tr.Output.Storyboard != nil || in.Info.Video == nil:
		return tr.Output.Storyboard, nil
	}
	board, err := c.tools(job, -1, "storyboard").Storyboard(ctx, dir, in.Info, tr.Output)
	if errors.Is(err, media.ErrNoPicture) {
		return nil, nil
	}
	return board, err
}

// completeMetadata puts into metadata.json what transcode found out. The file is a link to
// that of stage metadata, which stays as it is.
func completeMetadata(dir string, tr Transcode, md Metadata, board *media.Storyboard) error {
	if err := os.Remove(filepath.Join(dir, metadataFile)); err != nil {
		return fmt.Errorf("write description: %w", err)
	}
	d := md.Description
	d.Damage, d.Storyboard = tr.Output.Damage, board
	d.Warnings = append(slices.Clone(tr.Output.Warnings), d.Warnings...)
	return d.write(dir)
}

// checkAndWriteManifests writes both manifests, if what they would name is sound.
func (c Config) checkAndWriteManifests(ctx context.Context, job *stages.Job, dir string, in Ingest, tr Transcode, board *media.Storyboard) error {
	out := *tr.Output
	out.Storyboard = board
	err := c.tools(job, -1, "checking").Check(ctx, in.Info, dir, &out)
	if errors.Is(err, media.ErrMismatch) && !isHostError(err) {
		// The files passed when transcode made them. Looking once more at the
		// same files would change nothing.
		return stages.Permanent(fmt.Errorf("%w; run stage %s again", err, transcodeStage))
	}
	if err != nil {
		return err
	}
	if err := media.WriteMaster(dir, tr.Output, ""); err != nil {
		return err
	}
	return c.tools(job, -1, "manifest").WriteMPD(ctx, dir, tr.Output)
}
