// Package studio transcodes for the benchmark: through Cuelight's own stage, and
// with the ffmpeg commands that this runs, without it.
//
//	func main() {
//		if transcodebench.Called() {
//			os.Exit(transcodebench.Main())
//		}
//		…
//		commands, err := transcodebench.CommandsFor(ctx, "clip.mp4", dir)
//		took, err := transcodebench.Cuelight(ctx, transcodebench.Order{URL: url, Before: "short.mp4", Source: "clip.mp4", Dir: dir}, commands.Whole)
//		bare, err := transcodebench.Bare(ctx, []transcodebench.Command{commands.Whole}, dir)
//
// Each is done in a process of its own: the same program, started anew. It is
// small, so that the memory of those it starts is theirs, and ends with the one
// that started it.
//
// No command line is made here. Those of Cuelight are written down by a script
// that it is given for an ffmpeg, and that becomes the real one.
package transcodebench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/cuelight/cuelight/bench/child"
)

// Took is what a transcode took.
type Cost struct {
	CPU    time.Duration // in user and system mode, of all processes
	Wall   time.Duration
	Memory int64 // bytes: the most that an ffmpeg had, and of Cuelight the most of its own
}

// Order is what Cuelight is to do: to take a source as far as the transcode
// stage.
type Job struct {
	URL    string // of a database with Cuelight's tables
	Before string // the path of a source that is transcoded first, and not measured
	Source string // and of the one that is
	Dir    string // an empty directory, for sources and renditions
}

// env makes this program a studio: a job, as JSON.
const env = "CUELIGHT_BENCH_STUDIO"

// job is what a studio is to do, one of the two.
type job struct {
	Stage *stageJob
	Bare  *bareJob
}

type stageJob struct {
	Job
	FFmpeg string // the script
	Record string // where it writes
}

type bareJob struct {
	FFmpeg   string
	Dir      string // an empty directory, for renditions
	Commands []Command
}

// Called reports whether this process was started to be a transcodebench.
func IsChild() bool { return os.Getenv(env) != "" }

// Main does its job, says what that took, and returns its exit code.
func Main() int {
	var j job
	err := json.Unmarshal([]byte(os.Getenv(env)), &j)
	var took Cost
	switch {
	case err != nil:
	case j.Stage != nil:
		took, err = j.Stage.do(context.Background())
	case j.Bare != nil:
		took, err = j.Bare.do(context.Background())
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(took)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// apart has a job done in another process.
func apart(ctx context.Context, j job) (took Cost, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return took, err
	}
	self, err := os.Executable()
	if err != nil {
		return took, err
	}
	var said bytes.Buffer
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env+"="+string(text))
	cmd.Stdout = &said
	p, err := child.Start(cmd)
	if err != nil {
		return took, err
	}
	if err := p.Wait(ctx); err != nil {
		return took, err
	}
	if err := json.Unmarshal(said.Bytes(), &took); err != nil {
		return took, fmt.Errorf("hear what it took: %w", err)
	}
	return took, nil
}

// Bare runs commands one after the other, each of which writes below dir, which
// must be empty.
func RunCommands(ctx context.Context, commands []Command, dir string) (Cost, error) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		return Cost{}, err
	}
	return apart(ctx, job{Bare: &bareJob{FFmpeg: ffmpeg, Dir: dir, Commands: commands}})
}

func (b *bareJob) do(ctx context.Context) (took Cost, err error) {
	for _, c := range b.Commands {
		if err := c.makeFolders(b.Dir); err != nil {
			return took, err
		}
	}
	before, err := child.ChildrenUsage()
	if err != nil {
		return took, err
	}
	began := time.Now()
	for _, c := range b.Commands {
		cmd := exec.Command(b.FFmpeg, c...)
		cmd.Dir = b.Dir
		p, err := child.Start(cmd)
		if err == nil {
			err = p.Wait(ctx)
		}
		if err != nil {
			return took, err
		}
	}
	took.Wall = time.Since(began)
	after, err := child.ChildrenUsage()
	took.CPU, took.Memory = after.CPU-before.CPU, after.Memory
	return took, err
}

// errOther: what was measured is not what it is compared with.
var errUnexpectedCommand = errors.New("Cuelight ran another ffmpeg command than expected")
