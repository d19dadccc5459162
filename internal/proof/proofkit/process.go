package proofkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
)

// ChildCommand returns the command of this program, started again with a variable of the
// environment that has the config as JSON. A prefix is the words of a command that starts it.
func ChildCommand(variable string, config any, prefix ...string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	words := append(prefix[:len(prefix):len(prefix)], program)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	return cmd, nil
}

// RunIfChild runs a function with its config if [ChildCommand] started this program with the
// variable, and then ends the program. Its exit code is 1 if the function returns an error.
func RunIfChild[C any](variable string, run func(C) error) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var config C
	err := json.Unmarshal([]byte(text), &config)
	if err == nil {
		err = run(config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// WaitReady waits until ready is closed. If the process ends first, it returns
// [childproc.ErrEnded] with the reason. If ctx is done first, it kills the process and returns
// the cause.
func WaitReady(ctx context.Context, p *childproc.Process, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-p.Done():
		return errors.Join(childproc.ErrEnded, p.Err())
	case <-ctx.Done():
		return p.Wait(ctx)
	}
}

// Execute runs a program. Its error has the output.
func Execute(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// MakeClip generates a video. The picture is a source of ffmpeg, such as
// "testsrc2=size=640x360:rate=25".
func MakeClip(ctx context.Context, file, picture string, duration time.Duration, withSound bool) error {
	args := []string{"-nostdin", "-v", "error", "-f", "lavfi", "-i", picture}
	if withSound {
		args = append(args, "-f", "lavfi", "-i", "sine=sample_rate=48000", "-c:a", "aac")
	}
	return Execute(ctx, "ffmpeg", append(args, "-t", fmt.Sprint(duration.Seconds()),
		"-c:v", "libx264", "-preset", "ultrafast", "-crf", "18", "-pix_fmt", "yuv420p", file)...)
}

// ProjectDir returns the directory of the project if the working directory is in one of its modules,
// or "".
var ProjectDir = sync.OnceValue(func() string {
	out, _ := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cuelight/cuelight").Output()
	return strings.TrimSpace(string(out))
})

// BuildDaemon builds the cuelight of the project, with the flags of `make build` and so with its
// cache.
func BuildDaemon(ctx context.Context, file string) error {
	dir := ProjectDir()
	if dir == "" {
		return errors.New("the sources of the daemon are not here")
	}
	return Execute(ctx, "env", "CGO_ENABLED=0", "GOWORK=off",
		"go", "build", "-C", dir, "-trimpath", "-buildvcs=false", "-o", file, "./cmd/cuelight")
}

// DaemonEnviron returns this program's environment for a `cuelight serve`, without any setting of
// PostgreSQL or Cuelight but the given ones.
func DaemonEnviron(settings ...string) []string {
	var environ []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PG") && !strings.HasPrefix(variable, "CUELIGHT_") {
			environ = append(environ, variable)
		}
	}
	return append(environ, settings...)
}
