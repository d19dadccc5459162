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
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// Ingest is the result of the ingest stage.
type Ingest struct {
	// File is the source, relative to the task's directory.
	File string `json:"file"`
	// Name is the source's own name, for display; never part of a path.
	Name string `json:"name"`
	// Bytes and SHA256 (hexadecimal) are the file's.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Method is how the file was fetched: "reflink", "link", "copy" or "download".
	Method string `json:"method"`
	// Info describes the source.
	Info *media.Info `json:"info"`
	// Settings say how the video is made, as the task's params did, without what this host cannot make. Later stages take them from
	// here.
	Settings Settings `json:"settings,omitzero"`
	// Chunks says how the transcode is divided, or why it is not.
	Chunks *media.ChunkPlan `json:"chunks,omitempty"`
	// Warnings are those of Info and about the Settings, at the top level for clients.
	Warnings []string `json:"warnings,omitempty"`

	origin string // the artifact that has the file already; empty if none has
}

// Ingest returns the stage that fetches the source into the task's directory and
// rejects early what is not media.
//
// A source is an absolute path, an http, https or file URL, or what
// Bucket.StoreSource returned. The stage has more
// attempts than others, because networks and servers recover, and an attempt
// continues the previous download.
func (c Config) Ingest() stages.Stage {
	return stages.Stage{
		Name: ingestStage, Work: work(c, c.ingest),
		Slots: cmp.Or(c.Slots.Ingest, 4), MaxAttempts: 8, Stall: c.stall(),
	}
}

func (c Config) ingest(ctx context.Context, job *stages.Job) (Ingest, error) {
	params, err := ParseParams(job.Params)
	if err == nil {
		err = params.checkResolved()
	}
	if err == nil {
		err = c.checkFFprobe()
	}
	if err != nil {
		return Ingest{}, err
	}
	w, err := newWorkdirIn(ctx, job, c.makeTaskDir, ingestStage, c.numbers.newest(ingestStage)+1, privateMode)
	if err != nil {
		return Ingest{}, err
	}
	// A rejected source leaves nothing, not even an empty directory.
	defer os.Remove(w.parent)
	defer w.discard()
	job = w.withTouch(job)

	f, file, origin, err := c.fetchSource(ctx, job, filepath.Join(w.path, sourceFile))
	if err != nil {
		return Ingest{}, err
	}
	if err := makeSourceReadable(file, f.Method); err != nil {
		return Ingest{}, err
	}
	info, packets, err := c.probe(ctx, job, file)
	if err != nil {
		return Ingest{}, err
	}
	if params.Start != "" || params.End != "" {
		start, end := timeAt(params.Start, info.Duration), timeAt(cmp.Or(params.End, "100%"), info.Duration)
		if err := c.tools(job, -1, "finding the part").Trim(ctx, file, info, packets, start, end); err != nil {
			return Ingest{}, err
		}
	}
	warnings, err := c.resolveSettings(ctx, job, file, info, packets, &params.Settings)
	if err != nil {
		return Ingest{}, err
	}
	chunks, err := c.planChunks(ctx, job, file, info, packets, params.Settings.ladder(info))
	if err != nil {
		return Ingest{}, err
	}
	name, err := w.finish(ctx, job)
	if err != nil {
		return Ingest{}, err
	}
	params.Visibility = "" // it may change
	return Ingest{
		File: filepath.Join(name, filepath.Base(file)), Name: f.Name,
		Bytes: f.Bytes, SHA256: f.SHA256, Method: f.Method, Info: info, Settings: params.Settings, Chunks: chunks,
		Warnings: slices.Concat(info.Warnings, params.Settings.warnings(info), warnings), origin: origin,
	}, nil
}

// resolveSettings measures what the settings depend on, and leaves out what this host cannot make.
func (c Config) resolveSettings(
	ctx context.Context, job *stages.Job, file string, info *media.Info, packets *media.Packets, s *Settings,
) (warnings []string, err error) {
	info.SetDefaultAudio(s.Audio.Default)
	if s.Audio.Loudness != 0 {
		if err := c.tools(job, -1, "measuring loudness").MeasureLoudness(ctx, file, info, s.ladder(info)); err != nil {
			return nil, err
		}
	}
	possible, warnings, err := c.tools(job, -1, "listing encoders").Encodable(ctx, info, s.ladderOptions())
	if err != nil {
		return nil, err
	}
	s.Codecs, s.HDR = possible.Codecs, possible.HDR
	if len(s.Renditions) == 0 {
		s.LeftOut, err = c.tools(job, -1, "comparing sizes").RedundantHeights(ctx, file, info, s.ladder(info))
	}
	if err == nil && s.Quality == AutoQuality {
		var crf int
		crf, err = c.tools(job, -1, "measuring quality").AutoQuality(ctx, file, info, s.ladder(info))
		if s.Quality = Quality(crf); crf == 0 && info.Video != nil {
			warnings = append(warnings, "the quality is that of the worker: what the video needs cannot be measured in this source")
		}
	}
	if err == nil && s.Copy {
		var reason string
		if reason, err = c.tools(job, -1, "planning a copy").PlanCopy(ctx, file, info, packets, s.ladder(info)); reason != "" {
			warnings = append(warnings, "copied nothing: "+reason)
		}
	}
	return warnings, err
}

// ladder returns the rungs of the video.
func (in Ingest) ladder() []media.Rung { return in.Settings.ladder(in.Info) }

// probe measures a source. If ffprobe or ffmpeg stalls or exceeds its time limit
// twice, it will do so again and occupy a slot for as long, so the source is rejected.
func (c Config) probe(ctx context.Context, job *stages.Job, file string) (*media.Info, *media.Packets, error) {
	neverEnds := func(err error) bool {
		return ctx.Err() == nil && (errors.Is(err, media.ErrStalled) || errors.Is(err, media.ErrTooLong))
	}
	info, packets, err := c.tools(job, -1, "probing").ProbePackets(ctx, file)
	if neverEnds(err) {
		info, packets, err = c.tools(job, -1, "probing again").ProbePackets(ctx, file)
	}
	if neverEnds(err) {
		return nil, nil, &media.RejectedError{
			Reason: "the file cannot be read to its end: ffmpeg stopped making progress twice; send an intact copy",
			Detail: err.Error(),
		}
	}
	return info, packets, err
}

// fetchKeptCopy uses the copy that an earlier attempt made of a source that is
// missing now: an upload, of which there is no other copy, or a file that was
// removed. Without such a copy it returns missing. The other results are those of
// fetchSource.
func (c Config) fetchKeptCopy(
	ctx context.Context, job *stages.Job, file string, missing error,
) (f fetch.File, path, origin string, err error) {
	if job.Results == nil {
		return f, "", "", missing
	}
	before, err := stages.Result[Ingest](ctx, job, ingestStage)
	if err != nil {
		return f, "", "", missing // there is no earlier result, or it is not available
	}
	if c.Bucket != nil {
		origin = artifactName(job.Task, filepath.Dir(before.File))
		f, path, err = c.fetchStored(ctx, job, origin, file)
	} else {
		f, path, err = c.linkKeptCopy(ctx, job, before, file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return f, "", "", missing
	}
	f.Name = before.Name
	return f, path, origin, err
}

func (c Config) linkKeptCopy(ctx context.Context, job *stages.Job, before Ingest, file string) (f fetch.File, path string, err error) {
	kept, err := before.source(c.TaskDir(job.Task))
	if err != nil {
		return f, "", fs.ErrNotExist
	}
	return c.linkCopy(ctx, job, kept, before.Name, file)
}

// linkCopy uses a file of the data directory that never changes.
func (c Config) linkCopy(ctx context.Context, job *stages.Job, kept, name, file string) (f fetch.File, path string, err error) {
	o := c.fetchOptions(filepath.Dir(filepath.Dir(file)), job)
	o.Link = true
	if f, err = fetch.Fetch(ctx, kept, file, o); err != nil {
		return f, "", err
	}
	f.Name = name
	path, err = addExtension(file, name)
	return f, path, err
}

// checkFFprobe checks, before a long download, that ffprobe is installed.
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
			// The decimal makes slow progress visible to the watchdog.
			p := stages.Progress{Percent: -1, Note: fmt.Sprintf("fetching %.1f MiB", float64(done)/(1<<20))}
			if total > 0 {
				p.Percent = 100 * float64(done) / float64(total)
			}
			job.Progress(p)
		},
	}
}

var extensionPattern = regexp.MustCompile(`^\.[a-z0-9]{1,8}$`)

// addExtension renames a file so that it has the extension of the source's name. That is
// for operators, and because ffprobe uses it as a hint.
func addExtension(file, name string) (string, error) {
	renamed := file + safeExtension(name)
	if renamed == file {
		return file, nil
	}
	if err := os.Rename(file, renamed); err != nil {
		return "", fmt.Errorf("name source: %w", err)
	}
	return renamed, nil
}

// safeExtension returns a name's extension if it is plain, otherwise "".
func safeExtension(name string) string {
	ext := strings.ToLower(filepath.Ext(name))
	if !extensionPattern.MatchString(ext) {
		return ""
	}
	return ext
}

// source returns the ingested file, for later stages.
func (in Ingest) source(taskDir string) (string, error) {
	dir, err := findResultDir(taskDir, ingestStage, filepath.Dir(in.File))
	if err != nil {
		return "", err
	}
	if in.Info == nil {
		return "", fmt.Errorf("the result of stage %s has no description of the source; run it again", ingestStage)
	}
	return filepath.Join(dir, filepath.Base(in.File)), nil
}

// readableSource returns the ingested file after making it readable for ffmpeg.
func (c Config) readableSource(in Ingest, taskDir string) (string, error) {
	if c.Tools.Source != nil {
		return c.Tools.Source.Path, nil
	}
	file, err := in.source(taskDir)
	if err != nil {
		return "", err
	}
	return file, makeSourceReadable(file, in.Method)
}
