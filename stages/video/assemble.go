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
	// Files and Bytes are its number of files and total size.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Storyboard is the published one; nil if there is no picture.
	Storyboard *media.Storyboard `json:"storyboard,omitempty"`
}

// Assemble returns the stage that combines renditions and metadata, writes
// master.m3u8 and manifest.mpd, and checks the files on disk against the source.
func (c Config) Assemble() stages.Stage {
	return stages.Stage{
		Name: assembleStage, Needs: []string{transcodeStage, metadataStage}, Slots: cmp.Or(c.Slots.Assemble, 2),
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
	taskDir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Assemble{}, err
	}
	renditions, err := findResultDir(taskDir, transcodeStage, tr.Dir)
	if err != nil {
		return Assemble{}, err
	}
	description, err := findResultDir(taskDir, metadataStage, md.Dir)
	if err != nil {
		return Assemble{}, err
	}
	var result Assemble
	result.Dir, err = c.inWorkdir(ctx, job, taskDir, assembleStage, servedMode, func(job *stages.Job, dir string) error {
		linking := reportSteps(job, -1, "linking")
		l := linker{need: tr.Output.Bytes, reserve: c.reserve(), onFile: func(done treeSize) { linking(int64(done.files)) }}
		if err := l.add(ctx, renditions, dir, servedMode); err != nil {
			return fmt.Errorf("link renditions: %w", err)
		}
		if result.Storyboard, err = c.storyboard(ctx, job, dir, in, tr, md); err != nil {
			return err
		}
		if err := l.add(ctx, description, dir, servedMode); err != nil {
			return fmt.Errorf("link metadata: %w", err)
		}
		if err := c.complete(ctx, job, dir, in, tr, md, result.Storyboard); err != nil {
			return err
		}
		result.Files, result.Bytes, err = measureTree(dir, reportSteps(job, -1, "counting").counter())
		return err
	})
	if err != nil {
		return Assemble{}, err
	}
	removeOlder(ctx, job, taskDir, tr.Dir)
	removeOlder(ctx, job, taskDir, tr.afterChunks().String())
	removeOlder(ctx, job, taskDir, md.Dir)
	c.deleteRelocated(job.Source)
	return result, nil
}

// storyboard returns transcode's storyboard, or that of an older version's
// metadata stage. If neither made one, because transcode is of an older version
// and metadata is not, it makes one here.
func (c Config) storyboard(
	ctx context.Context, job *stages.Job, dir string, in Ingest, tr Transcode, md Metadata,
) (*media.Storyboard, error) {
	switch {
	case md.Storyboard != nil:
		return md.Storyboard, os.RemoveAll(filepath.Join(dir, storyboardDir)) // it is linked with the metadata
	case tr.Output.Storyboard != nil || in.Info.Video == nil:
		return tr.Output.Storyboard, nil
	}
	board, err := c.tools(job, -1, "storyboard").Storyboard(ctx, dir, in.Info, tr.Output)
	if errors.Is(err, media.ErrNoPicture) {
		return nil, nil
	}
	return board, err
}

// completeMetadata adds transcode's findings to metadata.json. It replaces the
// link, so that the metadata stage's file does not change.
func completeMetadata(dir string, tr Transcode, md Metadata, board *media.Storyboard) error {
	if err := os.Remove(filepath.Join(dir, metadataFile)); err != nil {
		return fmt.Errorf("replace %s: %w", metadataFile, err)
	}
	d := md.Description
	d.Damage, d.Storyboard = tr.Output.Damage, board
	d.Warnings = slices.Concat(tr.Warnings, d.Warnings)
	return d.write(dir)
}

// complete writes metadata.json, and both manifests if the files are correct.
func (c Config) complete(
	ctx context.Context, job *stages.Job, dir string, in Ingest, tr Transcode, md Metadata, board *media.Storyboard,
) error {
	if err := completeMetadata(dir, tr, md, board); err != nil {
		return err
	}
	out := *tr.Output
	out.Storyboard = board
	err := c.tools(job, -1, "checking").Check(ctx, in.Info, dir, &out)
	if errors.Is(err, media.ErrMismatch) && !isHostError(err) {
		// The files passed the check in transcode. Checking the same files again
		// would fail again.
		return stages.Permanent(fmt.Errorf("%w; run stage %s again", err, transcodeStage))
	}
	if err != nil {
		return err
	}
	out.Captions = md.Captions
	if err := media.WriteMaster(dir, &out, ""); err != nil {
		return err
	}
	return c.tools(job, -1, "manifest").WriteMPD(ctx, dir, &out)
}
