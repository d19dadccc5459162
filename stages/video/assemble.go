package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Assemble is the result of the assemble stage.
type Assemble struct {
	// Dir holds all that is published, relative to the task's directory.
	Dir string `json:"dir"`
	// From are the directories of transcode's and metadata's results, of which it was made.
	From []string `json:"from,omitempty"`
	// Files and Bytes are its number of files and total size.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Storyboard is the published one; nil if there is no picture.
	Storyboard *media.Storyboard `json:"storyboard,omitempty"`
	MP4Names
	// Captions are those of the source, and those that were attached.
	Captions []media.Captions `json:"captions,omitempty"`
	// Chapters are those that were attached, or else those of the source.
	Chapters []captions.Chapter `json:"chapters,omitempty"`
	// EncryptionKeyID names the key with which the segments are encrypted; empty if they are not.
	EncryptionKeyID string `json:"encryption_key_id,omitempty"`
}

// AttachedCaptions were attached to a task.
type AttachedCaptions struct {
	Language, Name       string
	Default, Forced, SDH bool
	// Chapters means that it has chapters instead of captions.
	Chapters bool
	WebVTT   []byte
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
	taskDir, from, err := c.assembleFrom(ctx, job, tr, md)
	if err != nil {
		return Assemble{}, err
	}
	result := Assemble{From: []string{tr.Dir, md.Dir}, Storyboard: tr.Output.Storyboard}
	_, result.MP4Names = in.mp4Files(tr.Output)
	result.Dir, err = c.inWorkdir(ctx, job, taskDir, assembleStage, servedMode, func(job *stages.Job, dir string) error {
		if err := c.linkAll(ctx, job, from, dir, tr, md); err != nil {
			return err
		}
		if err := c.attachCaptions(ctx, job, dir, in, &md.Description); err != nil {
			return err
		}
		result.Captions, result.Chapters = md.Captions, md.Chapters
		if result.EncryptionKeyID, err = c.complete(ctx, job, dir, in, tr, md); err != nil {
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

// assembleFrom returns the directories of which a video is assembled: the results of transcode and metadata or, if those were
// removed after it was published, what was assembled of them then.
func (c Config) assembleFrom(
	ctx context.Context, job *stages.Job, tr Transcode, md Metadata,
) (taskDir string, dirs []string, err error) {
	taskDir, missing := c.findTaskDir(job.Task)
	if missing == nil {
		renditions, err1 := findResultDir(taskDir, transcodeStage, tr.Dir)
		description, err2 := findResultDir(taskDir, metadataStage, md.Dir)
		dirs, missing = []string{renditions, description}, errors.Join(err1, err2)
	}
	if !isMissing(missing) {
		return taskDir, dirs, missing
	}
	before, err := stages.Result[Assemble](ctx, job, assembleStage)
	if errors.Is(err, store.ErrNotFound) || err == nil && !slices.Equal(before.From, []string{tr.Dir, md.Dir}) {
		return "", nil, missing
	}
	if err == nil && c.Bucket == nil { // otherwise it is restored before it is fetched
		err = c.restoreAssembled(ctx, job.Task, job.Results, reportTransfer(job, "restoring"))
	}
	if err != nil {
		return "", nil, err
	}
	assembled, err := findResultDir(taskDir, assembleStage, before.Dir)
	if isMissing(err) {
		return "", nil, missing
	}
	return taskDir, []string{assembled}, err
}

// linkAll links the files of the directories into dir, without those that are written again.
func (c Config) linkAll(ctx context.Context, job *stages.Job, from []string, dir string, tr Transcode, md Metadata) error {
	linking := reportSteps(job, -1, "linking")
	l := linker{need: tr.Output.Bytes, reserve: c.reserve(), onFile: func(done treeSize) { linking(int64(done.files)) }}
	for _, each := range from {
		if err := l.add(ctx, each, dir, servedMode); err != nil {
			return fmt.Errorf("link files of %s: %w", filepath.Base(each), err)
		}
	}
	return removeRewritten(dir, md.Captions)
}

// removeRewritten removes what assemble writes, except captions of the source: manifests, chapters, metadata.json, MP4 files, and
// attached captions.
func removeRewritten(dir string, ofSource []media.Captions) error {
	attached, err := filepath.Glob(filepath.Join(dir, "*", media.CaptionsFile))
	errs := []error{err}
	for _, file := range attached {
		track := filepath.Dir(file)
		if !slices.ContainsFunc(ofSource, func(c media.Captions) bool { return c.Dir == filepath.Base(track) }) {
			errs = append(errs, os.RemoveAll(track))
		}
	}
	for _, name := range []string{
		media.MasterName, media.ManifestName, media.ChaptersName, media.ChaptersJSONName, metadataFile, media.MP4Name, media.PreviewName,
	} {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// attachCaptions writes the attached captions, and adds them to those of the source. Attached chapters replace those of the source.
func (c Config) attachCaptions(ctx context.Context, job *stages.Job, dir string, in Ingest, d *Description) error {
	d.Chapters = d.Info.Chapters
	if c.Captions == nil {
		return nil
	}
	attached, err := c.Captions(ctx, job.Task)
	if err != nil {
		return err
	}
	d.Captions = slices.Clone(d.Captions)
	for _, a := range attached {
		if a.Chapters {
			d.Chapters, err = captions.ParseChapters(a.WebVTT, a.Language)
			d.Chapters = captions.FitChapters(d.Chapters, 0, in.Info.Duration)
		} else {
			track := media.Captions{Language: a.Language, Name: a.Name, Default: a.Default, Forced: a.Forced, SDH: a.SDH}
			d.Captions, err = media.AddCaptions(dir, d.Captions, track, a.WebVTT, in.Info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete writes metadata.json, with transcode's findings, and the manifests and MP4 files if the renditions are correct.
func (c Config) complete(
	ctx context.Context, job *stages.Job, dir string, in Ingest, tr Transcode, md Metadata,
) (encryptionKeyID string, err error) {
	d := md.Description
	d.Damage, d.Storyboard = tr.Output.Damage, tr.Output.Storyboard
	d.Warnings = slices.Concat(tr.Warnings, d.Warnings)
	_, d.MP4Names = in.mp4Files(tr.Output)
	if err := d.write(dir); err != nil {
		return "", err
	}
	out := *tr.Output
	err = c.checkRenditions(ctx, job, in, dir, &out)
	if errors.Is(err, media.ErrMismatch) && !isHostError(err) {
		// The files passed the check in transcode. Checking the same files again
		// would fail again.
		return "", stages.Permanent(fmt.Errorf("%w; run stage %s again", err, transcodeStage))
	}
	if err != nil {
		return "", err
	}
	if err := c.writeMP4s(ctx, job, dir, in, &out); err != nil {
		return "", err
	}
	out.Captions, out.Chapters = md.Captions, md.Chapters
	return c.writeManifests(ctx, job, in, dir, &out)
}
