package video

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// Transcode is the result of the transcode stage.
type Transcode struct {
	// Dir holds the renditions, relative to the task's directory.
	Dir string `json:"dir"`
	// Rungs is the ladder that was asked for, Output what came of it.
	Rungs  []media.Rung  `json:"rungs"`
	Output *media.Output `json:"output"`
	// Warnings are those of Output, where they are looked for.
	Warnings []string `json:"warnings,omitempty"`
}

// Transcode is the stage that makes the renditions.
func (c Config) Transcode() stages.Stage {
	c = c.withCache()
	return stages.Stage{
		Name: transcodeStage, Needs: []string{ingestStage}, Workers: cmp.Or(c.Workers.Transcode, 1),
		Stall: c.stall(),
		Work: work(c, func(ctx context.Context, job *stages.Job) (Transcode, error) {
			in, err := stages.Result[Ingest](ctx, job, ingestStage)
			if err != nil {
				return Transcode{}, err
			}
			return c.transcode(ctx, job, in)
		}),
	}
}

func (c Config) transcode(ctx context.Context, job *stages.Job, in Ingest) (Transcode, error) {
	dir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Transcode{}, err
	}
	source, err := in.readableSource(dir)
	if err != nil {
		return Transcode{}, err
	}
	w, err := newWorkdir(ctx, job, dir, transcodeStage, privateMode)
	if err != nil {
		return Transcode{}, err
	}
	defer w.discard()
	job = w.withTouch(job)

	rungs := media.Ladder(in.Info)
	if err := checkFreeSpace(w.path, estimateSize(in.Info, rungs), c.reserve()); err != nil {
		return Transcode{}, err
	}
	tools, tell := c.Tools, &transcodeReporter{job: job}
	tools.Step = tell.step
	out, err := tools.Transcode(ctx, source, in.Info, rungs, w.path, tell.progress)
	if err != nil {
		return Transcode{}, err
	}
	// Here, where another attempt can mend it, and again in assemble.
	if err := c.tools(job, 99, "checking").Check(ctx, in.Info, w.path, out); err != nil {
		return Transcode{}, err
	}
	name, err := w.finish(ctx, job)
	if err != nil {
		return Transcode{}, err
	}
	removeOlder(ctx, job, dir, filepath.Dir(in.File))
	return Transcode{Dir: name, Rungs: rungs, Output: out, Warnings: out.Warnings}, nil
}

// estimateSize is how many bytes the renditions may take: all of what the ladder
// allows. Most material stays well below, but a disk that fills up after an
// hour costs the hour, and perhaps that of others.
func estimateSize(info *media.Info, rungs []media.Rung) int64 {
	bits := 0
	for _, r := range rungs {
		bits += r.VideoBitrate + r.AudioBitrate
	}
	return int64(float64(bits) / 8 * info.Duration)
}
