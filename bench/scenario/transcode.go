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
				return fmt.Errorf("%s: %w", c.name(t.MediaDir), err)
			}
		}
		t.Note("transcode", "CPU is that of all processes of the transcode stage, with its checks of the renditions and "+
			"the engine, without the database; the process has transcoded one clip before, because asking ffmpeg for its "+
			"features takes 0.2 s of CPU once")
		return nil
	}}
}

// Clip is a source: a file of the shared clips or, if there is none, a generated test picture
// with a tone.
type Clip struct {
	File string // may be ""

	Size     string // "1280x720"
	Rate     int    // frames/s
	Duration time.Duration
}

// warmupClip is transcoded first: in a daemon, too, only the first transcode asks ffmpeg for its features.
var warmupClip = Clip{Size: "320x180", Rate: 10, Duration: time.Second}

func (t *Trial) transcode(ctx context.Context, c Clip) (err error) {
	dir, err := os.MkdirTemp(t.Dir, "cuelight-bench-transcode-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	warmup, err := warmupClip.source(ctx, "", filepath.Join(dir, "warmup.mp4"))
	if err != nil {
		return err
	}
	source, err := c.source(ctx, t.MediaDir, filepath.Join(dir, "clip.mp4"))
	if err != nil {
		return err
	}
	r, err := newFFmpegRecorder(dir)
	if err != nil {
		return err
	}
	m := &transcodeMeter{ended: make(chan error, 1)}
	var command []string
	err = m.run(ctx, t.URL, dir, r.script, func(transcode func(source string) error) error {
		err := transcode(warmup)
		if err == nil {
			_, err = r.take()
		}
		if err == nil {
			err = transcode(source)
		}
		if err == nil {
			command, err = r.take()
		}
		return err
	})
	if err != nil {
		return err
	}
	bare, err := runFFmpeg(ctx, withSoundOf(command, "file:"+source), filepath.Join(dir, "bare"))
	if err != nil {
		return err
	}
	prefix := "clip=" + c.name(t.MediaDir) + ","
	for name, cost := range map[string]transcodeCost{t.SystemName(): m.cost, "ffmpeg_bare": bare} {
		t.RecordFor(name, "transcode", prefix+"cpu", "CPU s", report.FromValue(cost.cpu.Seconds()))
		t.RecordFor(name, "transcode", prefix+"wall", "wall s", report.FromValue(cost.wall.Seconds()))
	}
	return nil
}

// name returns the name of the clip in results.
func (c Clip) name(mediaDir string) string {
	if c.exists(mediaDir) {
		return strings.TrimSuffix(c.File, filepath.Ext(c.File))
	}
	return fmt.Sprintf("generated_%sp%d_%v", c.Size, c.Rate, c.Duration)
}

func (c Clip) exists(mediaDir string) bool {
	_, err := os.Stat(filepath.Join(mediaDir, c.File))
	return mediaDir != "" && c.File != "" && err == nil
}

// source returns the path of the shared clip, or generates one.
func (c Clip) source(ctx context.Context, mediaDir, generated string) (string, error) {
	if c.exists(mediaDir) {
		return filepath.Abs(filepath.Join(mediaDir, c.File))
	}
	return generated, proofkit.MakeClip(ctx, generated, fmt.Sprintf("testsrc2=size=%s:rate=%d", c.Size, c.Rate), c.Duration, true)
}

// transcodeCost is what a transcode used.
type transcodeCost struct{ cpu, wall time.Duration }

// transcodeMeter measures the transcode stage.
type transcodeMeter struct {
	cost  transcodeCost // of the last task
	ended chan error
}

const measuredStage = "transcode"

// run runs the built-in pipeline as far as the transcode stage, while a function transcodes sources.
func (m *transcodeMeter) run(ctx context.Context, url, dir, ffmpeg string, do func(transcode func(source string) error) error) error {
	return system.WithPool(ctx, url, 0, func(pool *pgxpool.Pool) error {
		pipeline, err := m.pipeline(dir, ffmpeg)
		if err != nil {
			return err
		}
		tasks := store.New(pool, pipeline.Graph())
		if _, err := tasks.Migrate(ctx); err != nil { // the benchmark's stages do not divide
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		runner := stages.Runner{Pool: pool, Pipeline: pipeline, Observe: m.observe}
		stopped := make(chan error, 1)
		go func() { stopped <- runner.Run(ctx) }()
		err = do(func(source string) error {
			if _, err := tasks.Submit(ctx, store.Submission{Source: source}); err != nil {
				return err
			}
			select {
			case err := <-m.ended:
				return err
			case err := <-stopped:
				stopped <- nil
				return errors.Join(errors.New("the pipeline stopped"), err)
			}
		})
		stop()
		return errors.Join(err, <-stopped)
	})
}

// pipeline returns the built-in pipeline with workers for ingest and transcode only.
func (m *transcodeMeter) pipeline(dir, ffmpeg string) (*stages.Pipeline, error) {
	config := video.Config{
		DataDir: filepath.Join(dir, "data"), PublishDir: filepath.Join(dir, "published"),
		Tools: video.Tools{FFmpeg: ffmpeg, Sandbox: "off"}, Reserve: -1, // the script writes outside the sandbox
		ChunkLength: -1, // the same command as without Cuelight
	}
	for _, dir := range []string{config.DataDir, config.PublishDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	all := video.Stages(config)
	for i := range all {
		switch all[i].Name {
		case measuredStage:
			all[i].Part = m.measure(all[i].Part)
		case "ingest":
		default:
			all[i].Slots = -1
		}
	}
	return video.Pipeline(all...)
}

// measure returns the work with a measurement of its cost: that of this process and of children that have ended.
func (m *transcodeMeter) measure(work stages.Work) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		before, err := totalCPU()
		if err != nil {
			return nil, err
		}
		started := time.Now()
		result, workErr := work(ctx, job)
		m.cost.wall = time.Since(started)
		after, err := totalCPU()
		m.cost.cpu = after - before
		return result, errors.Join(workErr, err)
	}
}

func totalCPU() (total time.Duration, err error) {
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(of, &r); err != nil {
			return 0, os.NewSyscallError("getrusage", err)
		}
		total += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return total, nil
}

// observe reports the end of the stage, or the first event that should not happen.
func (m *transcodeMeter) observe(e stages.Event) {
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
	case m.ended <- err:
	default: // only the first counts
	}
}

// ffmpegRecorder is a script in place of ffmpeg that records the arguments of a transcode and then runs ffmpeg.
type ffmpegRecorder struct{ script, file string }

// recorderScript ends each argument with a 0, which no argument contains.
const recorderScript = `#!/bin/sh
case " $* " in *" hls "*) printf '%%s\0' "$@" >>%s;; esac
exec %s "$@"
`

func newFFmpegRecorder(dir string) (r ffmpegRecorder, err error) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		return r, err
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	r = ffmpegRecorder{script: filepath.Join(dir, "ffmpeg"), file: filepath.Join(dir, "arguments")}
	return r, os.WriteFile(r.script, fmt.Appendf(nil, recorderScript, quote(r.file), quote(ffmpeg)), 0o755)
}

// take returns the command that was recorded since the last call.
func (r ffmpegRecorder) take() ([]string, error) {
	text, err := os.ReadFile(r.file)
	if err != nil {
		return nil, fmt.Errorf("read ffmpeg's arguments: %w", err)
	}
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if !slices.Contains(args, "-i") || slices.Contains(args[1:], "-nostdin") { // which is the first of a command
		return nil, fmt.Errorf("not one command of ffmpeg: %q", args)
	}
	return args, os.Remove(r.file)
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
