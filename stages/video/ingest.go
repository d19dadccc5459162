package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// Ingest is the result of the ingest stage.
type Ingest struct {
	// File is the source in the task's directory, relative to that.
	File string `json:"file"`
	// Name is the source's own name, for people; never part of a path.
	Name string `json:"name"`
	// Bytes and SHA256 are the file's, the latter hexadecimal.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// How the file came: "reflink", "link", "copy" or "download".
	How string `json:"how"`
	// Info is what is in it.
	Info *media.Info `json:"info"`
	// Warnings are those of Info, where they are looked for.
	Warnings []string `json:"warnings,omitempty"`
}

// Ingest is the stage that brings the source into the task's directory and
// refuses what is not media, early and for good.
//
// A source is an absolute path or an http, https or file URL. It is retried
// more often than other stages, because networks and servers come back, and
// downloads are continued rather than begun again.
func (c Config) Ingest() stages.Stage {
	return stages.Stage{
		Name: ingestStage, Work: work(c, c.ingest),
		Workers: cmp.Or(c.Workers.Ingest, 4), MaxAttempts: 8, Stall: c.stall(),
	}
}

func (c Config) ingest(ctx context.Context, job *stages.Job) (Ingest, error) {
	if err := c.checkFFprobe(); err != nil {
		return Ingest{}, err
	}
	w, err := retryIfRemoved(func() (*workdir, error) {
		dir, err := c.makeTaskDir(job.Task)
		if err != nil {
			return nil, err
		}
		return newWorkdir(ctx, job, dir, ingestStage, privateMode)
	})
	if err != nil {
		return Ingest{}, err
	}
	// A source that is refused leaves nothing, not even an empty directory.
	defer os.Remove(w.parent)
	defer w.discard()
	job = w.withTouch(job)

	file := filepath.Join(w.path, "source")
	f, err := fetch.Fetch(ctx, job.Source, file, c.fetchOptions(w.parent, job))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = c.fetchKeptCopy(ctx, job, file, err)
	}
	if err != nil {
		return Ingest{}, err
	}
	if ext := safeExtension(f.Name); ext != "" {
		if err := os.Rename(file, file+ext); err != nil {
			return Ingest{}, fmt.Errorf("name source: %w", err)
		}
		file += ext
	}
	if err := makeSourceReadable(file, f.Method); err != nil {
		return Ingest{}, err
	}
	info, err := c.probe(ctx, job, file)
	if err != nil {
		return Ingest{}, err
	}
	name, err := w.finish(ctx, job)
	if err != nil {
		return Ingest{}, err
	}
	return Ingest{
		File: filepath.Join(name, filepath.Base(file)), Name: f.Name,
		Bytes: f.Bytes, SHA256: f.SHA256, How: f.Method, Info: info, Warnings: info.Warnings,
	}, nil
}

// probe looks at a source. One at which ffprobe or ffmpeg stops twice, or goes on
// without an end, will do the same the next time, and hold a slot for as long.
func (c Config) probe(ctx context.Context, job *stages.Job, file string) (*media.Info, error) {
	endless := func(err error) bool {
		return ctx.Err() == nil && (errors.Is(err, media.ErrStalled) || errors.Is(err, media.ErrTooLong))
	}
	info, err := c.tools(job, -1, "probing").Probe(ctx, file)
	if endless(err) {
		info, err = c.tools(job, -1, "probing again").Probe(ctx, file)
	}
	if endless(err) {
		return nil, &media.RejectedError{Reason: "the file cannot be read to its end: ffmpeg stood still at it twice", Detail: err.Error()}
	}
	return info, err
}

// fetchKeptCopy takes the copy that an earlier attempt made of a source that is not
// there any more: an upload, of which there is no other, or a file that somebody has
// put away since. Without such a copy, gone says what is wrong.
func (c Config) fetchKeptCopy(ctx context.Context, job *stages.Job, file string, gone error) (fetch.File, error) {
	if job.Results == nil {
		return fetch.File{}, gone
	}
	before, err := stages.Result[Ingest](ctx, job, ingestStage)
	if err != nil {
		return fetch.File{}, gone // there was none, or nobody can tell
	}
	kept, err := before.source(c.TaskDir(job.Task))
	if err != nil {
		return fetch.File{}, gone
	}
	o := c.fetchOptions(filepath.Dir(filepath.Dir(file)), job)
	o.Link = true // nobody writes into it
	f, err := fetch.Fetch(ctx, kept, file, o)
	if errors.Is(err, fs.ErrNotExist) {
		return fetch.File{}, gone
	}
	f.Name = before.Name
	return f, err
}

// checkFFprobe finds out before a long download whether it could be looked at.
func (c Config) checkFFprobe() error {
	program := cmp.Or(c.Tools.FFprobe, "ffprobe")
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%w: %s", media.ErrToolMissing, program)
	}
	return nil
}

func (c Config) fetchOptions(dir string, job *stages.Job) fetch.Options {
	return fetch.Options{
		Allow:    c.AllowNetworks,
		MaxBytes: c.MaxDownload,
		Timeout:  c.DownloadTimeout,
		Reserve:  c.reserve(),
		Link:     c.LinkSources,
		Partial:  filepath.Join(dir, partialDownload),
		Progress: func(done, total int64) {
			// With a decimal, what is slow enough to be left alone still shows.
			p := stages.Progress{Percent: -1, Note: fmt.Sprintf("fetching %.1f MiB", float64(done)/(1<<20))}
			if total > 0 {
				p.Percent = 100 * float64(done) / float64(total)
			}
			job.Progress(p)
		},
	}
}

var extensionPattern = regexp.MustCompile(`^\.[a-z0-9]{1,8}$`)

// safeExtension is the ending of a name, if there is nothing odd about it. It
// is kept for people, and because ffprobe takes it as a hint.
func safeExtension(name string) string {
	ext := strings.ToLower(filepath.Ext(name))
	if !extensionPattern.MatchString(ext) {
		return ""
	}
	return ext
}

// source is the ingested file, for the stages after this one.
func (in Ingest) source(taskDir string) (string, error) {
	dir, err := findResultDir(taskDir, ingestStage, filepath.Dir(in.File))
	if err != nil {
		return "", err
	}
	if in.Info == nil {
		return "", fmt.Errorf("the result of stage %s does not say what is in the source", ingestStage)
	}
	return filepath.Join(dir, filepath.Base(in.File)), nil
}

// readableSource is the ingested file of a task's directory, which ffmpeg may read.
func (in Ingest) readableSource(taskDir string) (string, error) {
	file, err := in.source(taskDir)
	if err != nil {
		return "", err
	}
	return file, makeSourceReadable(file, in.How)
}
