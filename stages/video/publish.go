package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// generationPrefix starts the names of generations in a published directory.
const generationPrefix = "gen"

// Publish is the result of the publish stage. All paths are slash-separated and
// relative to PublishDir, so they are URLs below a web server's PublishDir.
type Publish struct {
	// Master and Manifest are the stable paths, the same for every generation. An encrypted video has no Manifest.
	Master   string `json:"master"`
	Manifest string `json:"manifest,omitempty"`
	// Generation is the directory with all files of this version, including a
	// master.m3u8 and a manifest.mpd of its own.
	Generation string `json:"generation"`
	// Metadata, Poster and Storyboard are files in it; the latter two are empty
	// if there is no picture.
	Metadata   string `json:"metadata"`
	Poster     string `json:"poster,omitempty"`
	Storyboard string `json:"storyboard,omitempty"`
	MP4Names
	Presentation
	// Files and Bytes are its number of files and total size.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Publish returns the stage that makes the video visible in one step.
func (c Config) Publish() stages.Stage {
	return stages.Stage{
		Name: publishStage, Needs: []string{assembleStage}, Slots: cmp.Or(c.Slots.Publish, 2),
		Stall: c.stall(),
		Work: work(c, func(ctx context.Context, job *stages.Job) (Publish, error) {
			in, err1 := stages.Result[Ingest](ctx, job, ingestStage)
			tr, err2 := stages.Result[Transcode](ctx, job, transcodeStage)
			md, err3 := stages.Result[Metadata](ctx, job, metadataStage)
			as, err4 := stages.Result[Assemble](ctx, job, assembleStage)
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				return Publish{}, err
			}
			if c.Bucket == nil { // otherwise it is restored before it is fetched
				if err := c.restoreAssembled(ctx, job.Task, job.Results, reportTransfer(job, "restoring")); err != nil {
					return Publish{}, err
				}
			}
			at, err := firstPublished(ctx, job)
			if err != nil {
				return Publish{}, err
			}
			p, err := c.publish(ctx, job, in, tr, md, as)
			p.PublishedAt = at
			return p, err
		}, c.publishRoots()...),
	}
}

// publishRoots are the directories that publish needs besides DataDir.
func (c Config) publishRoots() []rootDir {
	if c.PublishBucket != nil {
		return nil
	}
	return []rootDir{{"publish", c.PublishDir}}
}

func (c Config) publish(
	ctx context.Context, job *stages.Job, in Ingest, tr Transcode, md Metadata, as Assemble,
) (Publish, error) {
	if c.PublishBucket != nil {
		return c.publishToBucket(ctx, job, tr, md, as)
	}
	dir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Publish{}, err
	}
	assembled, err := findResultDir(dir, assembleStage, as.Dir)
	if err != nil {
		return Publish{}, err
	}
	w, err := newWorkdirIn(ctx, job, c.makePublishedDir, generationPrefix, 1, servedMode)
	if err != nil {
		return Publish{}, err
	}
	defer w.discard()
	job = w.withTouch(job)
	if err := c.linkGeneration(ctx, job, w, assembled, in, tr, as); err != nil {
		return Publish{}, err
	}
	if err := w.sync(ctx, job); err != nil {
		return Publish{}, err
	}
	s := generationSwitch{
		publishedDir: w.parent, workdir: w, keepOld: c.keepOld(), checkCurrent: checkStillCurrent(job, as),
	}
	if err := s.run(ctx, job); err != nil {
		return Publish{}, err
	}
	removeOlder(ctx, job, dir, as.Dir)
	return publishedPaths(job.Task.String(), w.String(), tr, md, as), nil
}

// confirmTimeout limits a query whose answer is not essential.
const confirmTimeout = 10 * time.Second

// checkStillCurrent keeps a process that was stopped, and has not yet noticed that it
// lost its claim, from replacing a newer version by an older one.
func checkStillCurrent(job *stages.Job, mine Assemble) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if job.Results == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
		defer cancel()
		if err := job.Confirm(ctx); errors.Is(err, stages.ErrLeaseLost) || errors.Is(err, stages.ErrCancelled) {
			return err
		}
		now, err := stages.Result[Assemble](ctx, job, assembleStage)
		if err == nil && now.Dir != mine.Dir {
			return fmt.Errorf("another attempt has overtaken this one: it assembled %q, this one %q", now.Dir, mine.Dir)
		}
		return nil // without an answer, continue
	}
}

// linkGeneration links the assembled files into the new generation. Links are the
// checked files themselves; copies are checked again.
func (c Config) linkGeneration(
	ctx context.Context, job *stages.Job, w *workdir, assembled string, in Ingest, tr Transcode, as Assemble,
) error {
	l := linker{need: as.Bytes, reserve: c.reserve(), onFile: func(done treeSize) {
		percent := 100 * float64(done.bytes) / float64(max(as.Bytes, 1))
		job.Progress(stages.Progress{Percent: percent, Note: fmt.Sprintf("publishing %d", done.files)})
	}}
	if err := l.add(ctx, assembled, w.path, servedMode); err != nil {
		return fmt.Errorf("link generation: %w", err)
	}
	if l.done.files != as.Files || l.done.bytes != as.Bytes {
		return fmt.Errorf("link generation: found %d files with %d bytes; %d with %d bytes were assembled; "+
			"run stage assemble again",
			l.done.files, l.done.bytes, as.Files, as.Bytes)
	}
	if !l.copying {
		return nil
	}
	return c.checkRenditions(ctx, job, in, w.path, tr.Output)
}

func publishedPaths(task, generation string, tr Transcode, md Metadata, as Assemble) Publish {
	gen := path.Join(task, generation)
	p := Publish{
		Master:     path.Join(task, media.MasterName),
		Generation: gen,
		Metadata:   path.Join(gen, metadataFile),
		Files:      as.Files,
		Bytes:      as.Bytes,

		Presentation: newPresentation(gen, tr, as),
	}
	if as.EncryptionKeyID == "" {
		p.Manifest = path.Join(task, media.ManifestName)
	}
	for name, to := range map[string]*string{md.Poster: &p.Poster, as.MP4: &p.MP4, as.Preview: &p.Preview} {
		if name != "" {
			*to = path.Join(gen, name)
		}
	}
	if as.Storyboard != nil {
		p.Storyboard = path.Join(gen, media.StoryboardDir, as.Storyboard.VTT)
	}
	return p
}
