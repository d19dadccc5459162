package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/bench/transcodebench"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// Transcode is the real transcode of clips: by Cuelight's stage, by the same ffmpeg command
// without Cuelight ("ffmpeg_bare"), and by one ffmpeg per rung, one after the other, with the
// commands that Cuelight would use for a ladder of that rung alone ("ffmpeg_per_rung"). Each
// round starts with another of the three.
//
// CPU is that of all processes: for Cuelight's stage it includes the checks of the renditions
// and the process with the engine while the stage runs, but not the database. Memory is the
// peak of one ffmpeg; for Cuelight it includes the process around it, which contains the whole
// benchmark.
func Transcode(clips ...Clip) Scenario {
	return Scenario{Names: []string{"transcode"}, Measure: func(ctx context.Context, t *Trial) error {
		if err := requireFFmpeg(); err != nil {
			return err
		}
		for _, c := range clips {
			if err := c.measure(ctx, t); err != nil {
				return fmt.Errorf("%s: %w", c.name(t.MediaDir), err)
			}
		}
		t.Note("transcode", "CPU is that of all processes of the transcode stage, with its checks of the renditions and "+
			"the engine, without the database; the process has transcoded one clip before, because asking ffmpeg for its "+
			"features takes 0.2 s of CPU once")
		return nil
	}}
}

// warmupClip is transcoded first in Cuelight's process: in a daemon, too, only the first
// transcode asks ffmpeg for its features.
var warmupClip = Clip{Size: "320x180", Rate: 10, Duration: time.Second}

// Clip is a source: a file of the shared clips or, if there is none, a generated test picture
// with a tone.
type Clip struct {
	File string // may be ""

	Size     string // "1280x720"
	Rate     int    // frames/s
	Duration time.Duration
}

func (c Clip) measure(ctx context.Context, t *Trial) (err error) {
	dir, err := os.MkdirTemp(t.ScratchDir, "cuelight-bench-transcode-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	methods, err := c.prepare(ctx, t, dir)
	if err != nil {
		return err
	}
	for _, i := range rotation(t.Round, len(methods)) {
		m := methods[i]
		runDir := filepath.Join(dir, m.system)
		if err := os.Mkdir(runDir, 0o755); err != nil {
			return err
		}
		cost, err := m.run(runDir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.system, err)
		}
		prefix := "clip=" + c.name(t.MediaDir) + ","
		t.RecordFor(m.system, "transcode", prefix+"cpu", "CPU s", result.FromValue(cost.CPU.Seconds()))
		t.RecordFor(m.system, "transcode", prefix+"wall", "wall s", result.FromValue(cost.Wall.Seconds()))
		t.RecordFor(m.system, "transcode", prefix+"memory", "MiB", result.FromValue(float64(cost.Memory)/(1<<20)))
	}
	return nil
}

// transcodeMethod is one of the three ways to transcode a clip.
type transcodeMethod struct {
	system string
	run    func(dir string) (transcodebench.Cost, error)
}

// prepare provides the source and the commands for all methods.
func (c Clip) prepare(ctx context.Context, t *Trial, dir string) ([]transcodeMethod, error) {
	source, err := c.source(ctx, t.MediaDir, filepath.Join(dir, "clip.mp4"))
	if err != nil {
		return nil, err
	}
	warmup, recordDir := filepath.Join(dir, "warmup.mp4"), filepath.Join(dir, "commands")
	if err := errors.Join(warmupClip.generate(ctx, warmup), os.Mkdir(recordDir, 0o755)); err != nil {
		return nil, err
	}
	commands, err := transcodebench.RecordCommands(ctx, source, recordDir)
	if err != nil {
		return nil, err
	}
	return []transcodeMethod{
		{t.systemName, func(dir string) (transcodebench.Cost, error) {
			job := transcodebench.Job{URL: t.URL, Warmup: warmup, Source: source, Dir: dir}
			return transcodebench.RunStage(ctx, job, commands.Ladder)
		}},
		{"ffmpeg_bare", func(dir string) (transcodebench.Cost, error) {
			return transcodebench.RunCommands(ctx, []transcodebench.Command{commands.Ladder}, dir)
		}},
		{"ffmpeg_per_rung", func(dir string) (transcodebench.Cost, error) {
			return transcodebench.RunCommands(ctx, commands.PerRung, dir)
		}},
	}, nil
}

// name returns the name of the clip in results.
func (c Clip) name(mediaDir string) string {
	if c.exists(mediaDir) {
		return strings.TrimSuffix(c.File, filepath.Ext(c.File))
	}
	return fmt.Sprintf("generated_%sp%d_%v", c.Size, c.Rate, c.Duration)
}

func (c Clip) exists(mediaDir string) bool {
	if mediaDir == "" || c.File == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(mediaDir, c.File))
	return err == nil
}

// source returns the path of the shared clip, or generates one.
func (c Clip) source(ctx context.Context, mediaDir, generated string) (string, error) {
	if c.exists(mediaDir) {
		return filepath.Abs(filepath.Join(mediaDir, c.File))
	}
	return generated, c.generate(ctx, generated)
}

func (c Clip) generate(ctx context.Context, path string) error {
	return proofkit.MakeClip(ctx, path, fmt.Sprintf("testsrc2=size=%s:rate=%d", c.Size, c.Rate), c.Duration, true)
}
