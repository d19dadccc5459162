package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// Transcode is the real transcode of clips: by Cuelight's stage, and then by the same ffmpeg command
// without Cuelight ("ffmpeg_bare"). A script that Cuelight runs in place of ffmpeg records the command and runs ffmpeg.
//
// CPU is that of all processes: for Cuelight's stage it includes the checks of the renditions
// and this process with the engine while the stage runs, but not the database.
func Transcode(clips ...Clip) Scenario {
	return Scenario{Names: []string{"transcode"}, Measure: func(ctx context.Context, t *Trial) error {
		if err := requireFFmpeg(); err != nil {
			return err
		}
		for _, c := range clips {
			if err := t.transcode(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
		return nil
	}}
}

// Clip is a source: a file, or a generated picture with a tone.
type Clip struct {
	Name     string
	Path     string // of the file; "" generates a clip
	Picture  string // a source of ffmpeg
	Duration time.Duration
}

// warmupClip is transcoded first: in a daemon, too, only the first transcode asks ffmpeg for its features.
var warmupClip = Clip{Name: "warmup", Picture: "testsrc2=size=320x180:rate=10", Duration: time.Second}

// source returns the path of the file, or generates one in a directory.
func (c Clip) source(ctx context.Context, dir string) (string, error) {
	if c.Path != "" {
		return c.Path, nil
	}
	path := filepath.Join(dir, c.Name+".mp4")
	return path, proofkit.MakeClip(ctx, path, c.Picture, c.Duration, true)
}

func (t *Trial) transcode(ctx context.Context, c Clip) (err error) {
	dir, err := os.MkdirTemp(t.Dir, "cuelight-bench-transcode-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	warmup, err := warmupClip.source(ctx, dir)
	if err != nil {
		return err
	}
	source, err := c.source(ctx, dir)
	if err != nil {
		return err
	}
	cost, command, err := t.transcodeWithCuelight(ctx, dir, warmup, source)
	if err != nil {
		return err
	}
	bare, err := runFFmpeg(ctx, withSoundOf(command, "file:"+source), filepath.Join(dir, "bare"))
	if err != nil {
		return err
	}
	prefix := "clip=" + c.Name + ","
	for name, cost := range map[string]transcodeCost{t.SystemName(): cost, "ffmpeg_bare": bare} {
		t.RecordFor(name, "transcode", prefix+"cpu", "CPU s", report.FromValue(cost.cpu.Seconds()))
		t.RecordFor(name, "transcode", prefix+"wall", "wall s", report.FromValue(cost.wall.Seconds()))
	}
	return nil
}

// transcodeCost is what a transcode used.
type transcodeCost struct{ cpu, wall time.Duration }

const measuredStage = "transcode"

// transcodeWithCuelight takes sources through the built-in pipeline as far as the transcode stage. It returns the cost of
// that stage for the last one, and the command of ffmpeg.
func (t *Trial) transcodeWithCuelight(ctx context.Context, dir string, sources ...string) (
	cost transcodeCost, command []string, err error,
) {
	script, recorded, err := newFFmpegRecorder(dir)
	if err != nil {
		return cost, nil, err
	}
	pipeline, err := measuredPipeline(dir, script, &cost)
	if err != nil {
		return cost, nil, err
	}
	err = system.WithPool(ctx, t.URL, 0, func(pool *pgxpool.Pool) error {
		tasks := store.New(pool, pipeline.Graph())
		if _, err := tasks.Migrate(ctx); err != nil { // the benchmark's stages do not divide
			return err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		ended, stopped := make(chan error, 1), make(chan error, 1)
		runner := stages.Runner{Pool: pool, Pipeline: pipeline, Observe: func(e stages.Event) { reportEnd(e, ended) }}
		go func() { stopped <- runner.Run(running) }()
		for _, source := range sources {
			if _, err = tasks.Submit(ctx, store.Submission{Source: source}); err != nil {
				break
			}
			select {
			case err = <-ended:
			case err = <-stopped:
				return errors.Join(errors.New("the pipeline stopped"), err)
			}
			if err == nil {
				command, err = takeCommand(recorded)
			}
			if err != nil {
				break
			}
		}
		stop()
		return errors.Join(err, <-stopped)
	})
	return cost, command, err
}

// measuredPipeline returns the built-in pipeline with workers for ingest and transcode only. The cost of the latter is that
// of this process and of children that have ended.
func measuredPipeline(dir, ffmpeg string, cost *transcodeCost) (*stages.Pipeline, error) {
	config := video.Config{
		DataDir: filepath.Join(dir, "data"), PublishDir: filepath.Join(dir, "published"),
		Tools: video.Tools{FFmpeg: ffmpeg, Sandbox: "off"}, Reserve: -1, // the script writes outside the sandbox
		ChunkLength: -1, // the same command as without Cuelight
	}
	if err := errors.Join(os.Mkdir(config.DataDir, 0o755), os.Mkdir(config.PublishDir, 0o755)); err != nil {
		return nil, err
	}
	all := video.Stages(config)
	for i := range all {
		switch all[i].Name {
		case measuredStage:
			transcode := all[i].Part
			all[i].Part = func(ctx context.Context, job *stages.Job) (any, error) {
				started, before := time.Now(), totalCPU()
				result, err := transcode(ctx, job)
				*cost = transcodeCost{totalCPU() - before, time.Since(started)}
				return result, err
			}
		case "ingest":
		default:
			all[i].Slots = -1
		}
	}
	return video.Pipeline(all...)
}

// totalCPU is the processor time of this process and of its children that have ended.
func totalCPU() (total time.Duration) {
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		_ = syscall.Getrusage(of, &r) // it fails only for other arguments
		total += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return total
}

// reportEnd reports the end of the measured stage, or an event that should not happen.
func reportEnd(e stages.Event, ended chan<- error) {
	var err error
	switch e.Kind {
	case stages.StageCompleted:
		if e.Stage != measuredStage {
			return
		}
	case stages.AttemptFailed, stages.StageDead, stages.ClaimReleased, stages.ClaimRevoked, stages.DatabaseUnavailable:
		err = fmt.Errorf("%s: %s: %w", e.Kind, e.Stage, e.Err)
	default:
		return
	}
	select {
	case ended <- err:
	default: // only the first counts
	}
}

// recorderScript ends each argument with a 0, which no argument contains.
const recorderScript = `#!/bin/sh
case " $* " in *" hls "*) printf '%%s\0' "$@" >>%s;; esac
exec %s "$@"
`

// newFFmpegRecorder returns a script in place of ffmpeg that records the arguments of a transcode in a file and then runs
// ffmpeg.
func newFFmpegRecorder(dir string) (script, recorded string, err error) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		return "", "", err
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	script, recorded = filepath.Join(dir, "ffmpeg"), filepath.Join(dir, "arguments")
	return script, recorded, os.WriteFile(script, fmt.Appendf(nil, recorderScript, quote(recorded), quote(ffmpeg)), 0o755)
}

// takeCommand returns the command that was recorded since the last call.
func takeCommand(recorded string) ([]string, error) {
	text, err := os.ReadFile(recorded)
	if err != nil {
		return nil, fmt.Errorf("read ffmpeg's arguments: %w", err)
	}
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if !slices.Contains(args, "-i") || slices.Contains(args[1:], "-nostdin") { // which is the first of a command
		return nil, fmt.Errorf("not one command of ffmpeg: %q", args)
	}
	return args, os.Remove(recorded)
}

// withSoundOf returns a command with a source in place of the pipes from which Cuelight's reads the sound, so that it is
// one ffmpeg that does all. The sound must be stream 1 of the source.
func withSoundOf(command []string, source string) []string {
	const pipeOptions = 7 // how many arguments before a pipe are its options
	command = slices.Clone(command)
	for i := len(command) - 1; i >= pipeOptions; i-- {
		if command[i-1] == "-i" && strings.HasPrefix(command[i], "pipe:") {
			command = slices.Replace(command, i-pipeOptions, i+1, "-i", source)
		}
	}
	return command
}

// runFFmpeg runs a command in a new directory, below which it writes.
func runFFmpeg(ctx context.Context, args []string, dir string) (cost transcodeCost, err error) {
	for i, arg := range args {
		if name, ok := strings.CutPrefix(arg, "file:"); ok && args[i-1] != "-i" && filepath.IsLocal(name) {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
				return cost, err
			}
		}
	}
	cmd := exec.CommandContext(ctx, "ffmpeg", args...)
	cmd.Dir = dir
	started := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return cost, fmt.Errorf("ffmpeg: %w: %s", err, out)
	}
	return transcodeCost{cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), time.Since(started)}, nil
}
