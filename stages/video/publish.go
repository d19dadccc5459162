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

// generationPrefix begins the names of generations in a published directory.
const generationPrefix = "gen"

// Publish is the result of the publish stage. All paths are relative to
// PublishDir, with slashes: a web server that serves PublishDir has them as
// URLs.
type Publish struct {
	// Master and Manifest are the stable addresses, the same for every
	// generation.
	Master   string `json:"master"`
	Manifest string `json:"manifest"`
	// Generation is the directory with all that belongs to this version. It
	// has a master.m3u8 and a manifest.mpd of its own, which stay with it.
	Generation string `json:"generation"`
	// Metadata, Poster and Storyboard are in it; the latter two are empty if
	// there is no picture.
	Metadata   string `json:"metadata"`
	Poster     string `json:"poster,omitempty"`
	Storyboard string `json:"storyboard,omitempty"`
	// Files and Bytes are how much it is.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Publish is the stage that makes the video visible, all at once.
func (c Config) Publish() stages.Stage {
	return stages.Stage{
		Name: publishStage, Needs: []string{assembleStage}, Workers: cmp.Or(c.Workers.Publish, 2),
		Stall: c.stall(),
		Work: work(c, func(ctx context.Context, job *stages.Job) (Publish, error) {
			in, err1 := stages.Result[Ingest](ctx, job, ingestStage)
			tr, err2 := stages.Result[Transcode](ctx, job, transcodeStage)
			md, err3 := stages.Result[Metadata](ctx, job, metadataStage)
			as, err4 := stages.Result[Assemble](ctx, job, assembleStage)
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				return Publish{}, err
			}
			return c.publish(ctx, job, in, tr, md, as)
		}, rootDir{"publish", c.PublishDir}),
	}
}

func (c Config) publish(ctx context.Context, job *stages.Job, in Ingest, tr Transcode, md Metadata, as Assemble) (Publish, error) {
	dir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Publish{}, err
	}
	assembled, err := findResultDir(dir, assembleStage, as.Dir)
	if err != nil {
		return Publish{}, err
	}
	w, err := retryIfRemoved(func() (*workdir, error) {
		public, err := c.makePublishedDir(job.Task)
		if err != nil {
			return nil, err
		}
		return newWorkdir(ctx, job, public, generationPrefix, servedMode)
	})
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
	s := generationSwitch{publishedDir: w.parent, workdir: w, keepOld: c.keepOld(), out: tr.Output, checkCurrent: checkStillCurrent(job, as)}
	if err := s.run(ctx, job); err != nil {
		return Publish{}, err
	}
	removeOlder(ctx, job, dir, as.Dir)
	return publishedPaths(job.Task.String(), w.String(), md, as), nil
}

// confirmTimeout bounds a question to the database that can do without an answer.
const confirmTimeout = 10 * time.Second

// checkStillCurrent keeps a process that was stopped for a while, and does not
// know yet that it lost its claim, from putting an old version in the place of
// a new one.
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
			return fmt.Errorf("%q was assembled since, and this attempt's is %q: another has overtaken it", now.Dir, mine.Dir)
		}
		return nil // without an answer, all is as it was
	}
}

// linkGeneration makes the new generation what was assembled. Links are the very files
// that were checked; copies are others, and are checked for themselves.
func (c Config) linkGeneration(ctx context.Context, job *stages.Job, w *workdir, assembled string, in Ingest, tr Transcode, as Assemble) error {
	l := linker{need: as.Bytes, reserve: c.reserve(), onFile: func(done treeSize) {
		job.Progress(stages.Progress{Percent: 100 * float64(done.bytes) / float64(max(as.Bytes, 1)), Note: fmt.Sprintf("publishing %d", done.files)})
	}}
	if err := l.add(ctx, assembled, w.path, servedMode); err != nil {
		return fmt.Errorf("fill generation: %w", err)
	}
	if l.done.files != as.Files || l.done.bytes != as.Bytes {
		return fmt.Errorf("fill generation: %d files with %d bytes, but %d with %d were assembled",
			l.done.files, l.done.bytes, as.Files, as.Bytes)
	}
	if !l.copying {
		return nil
	}
	return c.tools(job, -1, "checking").Check(ctx, in.Info, w.path, tr.Output)
}

func publishedPaths(task, generation string, md Metadata, as Assemble) Publish {
	gen := path.Join(task, generation)
	p := Publish{
		Master:     path.Join(task, media.MasterName),
		Manifest:   path.Join(task, media.ManifestName),
		Generation: gen,
		Metadata:   path.Join(gen, metadataFile),
		Files:      as.Files,
		Bytes:      as.Bytes,
	}
	if md.Poster != "" {
		p.Poster = path.Join(gen, md.Poster)
	}
	if board := cmp.Or(as.Storyboard, md.Storyboard); board != nil {
		p.Storyboard = path.Join(gen, storyboardDir, board.VTT)
	}
	return p
}
