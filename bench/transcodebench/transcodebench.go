// Package transcodebench measures a transcode through Cuelight's own stage, and the ffmpeg
// commands of that stage without Cuelight.
//
//	func main() {
//		transcodebench.RunIfChild()
//		…
//		commands, err := transcodebench.RecordCommands(ctx, "clip.mp4", dir)
//		job := transcodebench.Job{URL: url, Warmup: "short.mp4", Source: "clip.mp4", Dir: dir}
//		cost, err := transcodebench.RunStage(ctx, job, commands.Ladder)
//		bare, err := transcodebench.RunCommands(ctx, []transcodebench.Command{commands.Ladder}, dir)
//
// Each runs in a process of its own: the same program, started again. It is small, so that
// the memory of its children is their own.
//
// This package builds no command line. A script that Cuelight uses in place of ffmpeg records
// Cuelight's commands and then runs ffmpeg.
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

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// Cost is what a transcode used.
type Cost struct {
	CPU    time.Duration // of all processes, in user and in system mode
	Wall   time.Duration
	Memory int64 // bytes: the peak of one ffmpeg; with Cuelight, plus the peak of its process
}

// Job is a source that Cuelight takes as far as the transcode stage.
type Job struct {
	URL    string // of a database with Cuelight's tables
	Warmup string // the path of a source that is transcoded first and not measured
	Source string // the path of the source that is measured
	Dir    string // an empty directory for sources and renditions
}

// childEnv is the variable with the child's task, as JSON.
const childEnv = "CUELIGHT_BENCH_TRANSCODE"

// childTask is what a child runs: one of the two.
type childTask struct {
	Stage    *stageTask
	Commands *commandsTask
}

type stageTask struct {
	Job
	FFmpeg string // the recording script
	Record string // the file that it writes
}

type commandsTask struct {
	FFmpeg   string
	Dir      string // an empty directory for renditions
	Commands []Command
}

// RunIfChild runs the task of a process that this package started, prints the cost, and ends the
// process.
func RunIfChild() {
	proofkit.RunIfChild(childEnv, func(t childTask) error {
		run := t.Commands.run
		if t.Stage != nil {
			run = t.Stage.run
		}
		cost, err := run(context.Background())
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(cost)
	})
}

// runInChild runs a task in another process.
func runInChild(ctx context.Context, t childTask) (cost Cost, err error) {
	cmd, err := proofkit.ChildCommand(childEnv, t)
	if err != nil {
		return cost, err
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := childproc.Run(ctx, cmd, childproc.Options{}); err != nil {
		return cost, err
	}
	if err := json.Unmarshal(out.Bytes(), &cost); err != nil {
		return cost, fmt.Errorf("read cost: %w", err)
	}
	return cost, nil
}

// RunCommands runs commands one after the other. They write below dir, which must be empty.
func RunCommands(ctx context.Context, commands []Command, dir string) (Cost, error) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		return Cost{}, err
	}
	return runInChild(ctx, childTask{Commands: &commandsTask{FFmpeg: ffmpeg, Dir: dir, Commands: commands}})
}

func (t *commandsTask) run(ctx context.Context) (cost Cost, err error) {
	for _, c := range t.Commands {
		if err := c.makeDirs(t.Dir); err != nil {
			return cost, err
		}
	}
	before, err := childrenUsage()
	if err != nil {
		return cost, err
	}
	started := time.Now()
	for _, c := range t.Commands {
		cmd := exec.Command(t.FFmpeg, c...)
		cmd.Dir = t.Dir
		if err := childproc.Run(ctx, cmd, childproc.Options{}); err != nil {
			return cost, err
		}
	}
	cost.Wall = time.Since(started)
	after, err := childrenUsage()
	cost.CPU, cost.Memory = after.CPU-before.CPU, after.Peak
	return cost, err
}

// errUnexpectedCommand says that the measured command is not the one to compare with.
var errUnexpectedCommand = errors.New("cuelight ran another ffmpeg command than expected")
