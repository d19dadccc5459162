package video

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// Transcode is the result of the transcode stage.
type Transcode struct {
	// Dir holds the renditions, relative to the task's directory.
	Dir string `json:"dir"`
	// Rungs is the requested ladder, Output what was made of it.
	Rungs  []media.Rung  `json:"rungs"`
	Output *media.Output `json:"output"`
	// Warnings are those of Output, at the top level for clients.
	Warnings []string `json:"warnings,omitempty"`
}

// Transcode returns the stage that makes the renditions.
func (c Config) Transcode() stages.Stage {
	c = c.withCache()
	return stages.Stage{
		Name: transcodeStage, Needs: []string{ingestStage}, Slots: cmp.Or(c.Slots.Transcode, 1), Stall: c.stall(),
		Divide: divideTranscode,
		Part: work(c, func(ctx context.Context, job *stages.Job) (Transcode, error) {
			in, err := stages.Result[Ingest](ctx, job, ingestStage)
			if err != nil {
				return Transcode{}, err
			}
			return c.transcode(ctx, job, in)
		}),
		Work: joinTranscode,
	}
}

// divideTranscode makes one part of each source.
func divideTranscode(context.Context, *stages.Job) ([]stages.Part, error) {
	return []stages.Part{{}}, nil
}

// joinTranscode returns the result of the only part.
func joinTranscode(ctx context.Context, job *stages.Job) (any, error) {
	all, err := stages.PartResults[Transcode](ctx, job)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (c Config) transcode(ctx context.Context, job *stages.Job, in Ingest) (Transcode, error) {
	taskDir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Transcode{}, err
	}
	source, err := c.readableSource(in, taskDir)
	if err != nil {
		return Transcode{}, err
	}
	rungs := in.ladder()
	var out *media.Output
	name, err := c.inWorkdir(ctx, job, taskDir, transcodeStage, privateMode, func(job *stages.Job, dir string) error {
		if err := diskspace.Check(dir, estimateSize(in.Info, rungs), c.reserve()); err != nil {
			return err
		}
		tools, reporter := c.Tools, &transcodeReporter{job: job}
		tools.Step = reporter.step
		if out, err = tools.Transcode(ctx, source, in.Info, rungs, dir, reporter.progress); err != nil {
			return err
		}
		// Check here, because another attempt can fix a mismatch. Assemble checks again.
		return c.tools(job, 99, "checking").Check(ctx, in.Info, dir, out)
	})
	if err != nil {
		return Transcode{}, err
	}
	removeOlder(ctx, job, taskDir, filepath.Dir(in.File))
	return Transcode{Dir: name, Rungs: rungs, Output: out, Warnings: out.Warnings}, nil
}

// estimateSize is the highest size in bytes that the ladder allows. Most
// renditions stay well below it, but a disk that becomes full after an hour costs
// that hour, and perhaps those of other tasks.
func estimateSize(info *media.Info, rungs []media.Rung) int64 {
	bits := 0
	for _, r := range rungs {
		bits += r.VideoBitrate + r.AudioBitrate
	}
	return int64(float64(bits) / 8 * info.Duration)
}
