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
	// Kept are the names of renditions of Output that the transcode before has made.
	Kept []string `json:"kept,omitempty"`
	// Failed are the renditions that could not be made. Output has those of the transcode before in their place,
	// if there are any.
	Failed []FailedRendition `json:"failed,omitempty"`
	// Warnings are those of Output and about Failed, at the top level for clients.
	Warnings []string `json:"warnings,omitempty"`
	// Chunks is how many chunks were joined; 0: the source was transcoded whole, and Undivided says why.
	Chunks    int    `json:"chunks,omitempty"`
	Undivided string `json:"undivided,omitempty"`
	// LastChunk is the directory of the chunks with the highest number.
	LastChunk string `json:"last_chunk,omitempty"`
}

// Transcode returns the stage that makes the renditions.
func (c Config) Transcode() stages.Stage {
	c = c.withCache()
	return stages.Stage{
		Name: transcodeStage, Needs: []string{ingestStage}, Slots: cmp.Or(c.Slots.Transcode, 1), Stall: c.stall(),
		Divide: divideTranscode,
		Part:   work(c, c.transcodePart),
		Work:   work(c, c.joinTranscode),
	}
}

// findSource returns the directory of a task, and its source, readable for ffmpeg.
func (c Config) findSource(job *stages.Job, in Ingest) (taskDir, source string, err error) {
	if taskDir, err = c.findTaskDir(job.Task); err == nil {
		source, err = c.readableSource(in, taskDir)
	}
	return taskDir, source, err
}

// transcode makes the whole transcode.
func (c Config) transcode(ctx context.Context, job *stages.Job, in Ingest, spec chunkSpec) (tr Transcode, err error) {
	taskDir, source, err := c.findSource(job, in)
	if err != nil {
		return Transcode{}, err
	}
	tr.Rungs = spec.rungs(in)
	tr.Dir, err = c.inWorkdir(ctx, job, taskDir, transcodeStage, privateMode, func(job *stages.Job, dir string) error {
		if err := diskspace.Check(dir, in.chunkSize(spec), c.reserve()); err != nil {
			return err
		}
		tools, reporter := c.Tools, &transcodeReporter{job: job}
		tools.Step = reporter.step
		made, failed, err := makeRungs(ctx, job, in, tr.Rungs, dir, func(rungs []media.Rung, dir string) (*media.Output, error) {
			return tools.Transcode(ctx, source, in.Info, rungs, dir, reporter.progress)
		})
		if err != nil {
			return err
		}
		tr.setFailed(failed)
		tr.Output = made[0]
		for _, more := range made[1:] {
			tr.Output.AddRenditions(more)
		}
		// Check all renditions together, because another attempt can fix a mismatch. Assemble checks again, and so does
		// the join if it adds other renditions.
		return c.tools(job, 99, "checking").Check(ctx, in.Info, dir, tr.Output)
	})
	if err != nil {
		return Transcode{}, err
	}
	removeOlder(ctx, job, taskDir, filepath.Dir(in.File))
	tr.Warnings = tr.warnings()
	return tr, nil
}

// estimateSize is the highest size in bytes that the ladder allows for so many seconds. Most
// renditions stay well below it, but a disk that becomes full after an hour costs
// that hour, and perhaps those of other tasks.
func estimateSize(seconds float64, rungs []media.Rung) int64 {
	bits := 0
	for _, r := range rungs {
		bits += r.VideoBitrate + r.AudioBitrate
	}
	return int64(float64(bits) / 8 * seconds)
}
