package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// pipeDelay is how long a killed child's pipes may stay open.
const pipeDelay = 5 * time.Second

// command is one run of ffmpeg or ffprobe.
type command struct {
	tool    string // "ffmpeg" or "ffprobe"
	purpose string // it is run for, a word or two
	args    []string
	dir     string // working folder; relative names in args are below it
	// source is the input's absolute path. It is kept out of what the child
	// says, so that error texts show nothing of this host.
	source string
	stdin  io.Reader // nil: empty
	stdout io.Writer // nil: discarded
	// noProgress means that the child is not expected to write to stdout all the
	// time; then Stall bounds the whole run.
	noProgress bool
}

// stderrReport is what a child left on stderr, and took to say it.
type stderrReport struct {
	tail   string
	errors int64
	cpu    time.Duration // that the child used
	// diskError is trouble with it that a child with a folder spoke of, and that could not
	// be confirmed.
	diskError error
}

// toolPath finds the program.
func (t Tools) toolPath(tool string) (string, error) {
	name := tool
	if tool == "ffmpeg" && t.FFmpeg != "" {
		name = t.FFmpeg
	}
	if tool == "ffprobe" && t.FFprobe != "" {
		name = t.FFprobe
	}
	p, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s (%w)", ErrToolMissing, tool, errors.Unwrap(err))
	}
	// A relative path would be looked for below the child's own folder.
	return filepath.Abs(p)
}

// run starts a child and waits for it. The child, and all that it has started
// in turn, is gone when run returns, whatever happened. An exit code other than
// zero is an *exitError.
func (t Tools) run(ctx context.Context, c command) (stderrReport, error) {
	ctx, span := c.startSpan(ctx)
	out, err := t.execute(ctx, c)
	c.endSpan(span, out, err)
	return out, err
}

func (t Tools) execute(ctx context.Context, c command) (stderrReport, error) {
	path, err := t.toolPath(c.tool)
	if err != nil {
		return stderrReport{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	pulse := &stdoutMonitor{next: c.stdout}
	stderr := &stderrTail{source: c.source}
	cmd := exec.CommandContext(ctx, path, c.args...)
	cmd.Dir = cmp.Or(c.dir, "/")
	cmd.Env = environment(c.dir)
	cmd.Stdin = c.stdin
	cmd.Stdout = pulse
	cmd.Stderr = stderr
	cmd.WaitDelay = pipeDelay
	group := newProcessGroup(cmd)
	killings := oomKillCount()
	confined, err := t.applySandbox(ctx, cmd, c)
	if err != nil {
		return stderrReport{}, fmt.Errorf("start %s: %w", c.tool, err)
	}
	defer confined.release()
	stderr.sandboxURL = confined.url

	// The signal sent to a child at its parent's death is bound to the thread
	// that started it, so that thread must not end before the child does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return stderrReport{}, fmt.Errorf("start %s: %w", c.tool, err)
	}
	lowerPriority(cmd.Process.Pid, t.Nice)

	var beside sync.WaitGroup
	beside.Go(func() { lowerSessionPriority(ctx, cmd.Process.Pid, t.Nice) })
	beside.Go(func() { t.watch(ctx, cancel, pulse, c.noProgress, cmd.Process.Pid) })
	waitErr := group.wait()
	cause := context.Cause(ctx)
	cancel(nil)
	beside.Wait()
	if cause == nil {
		t.step()
	}

	if err := confined.release(); err != nil && cause == nil {
		return stderrReport{}, fmt.Errorf("run %s: %w", c.tool, err)
	}
	out := stderr.report()
	if state := cmd.ProcessState; state != nil {
		out.cpu = state.UserTime() + state.SystemTime()
	}
	switch {
	case cause != nil:
		return out, fmt.Errorf("run %s: %w", c.tool, cause)
	case stderr.diskError != nil && isDiskErrorConfirmed(c.dir, stderr.diskError):
		return out, fmt.Errorf("run %s: %w", c.tool, stderr.diskError)
	case c.dir != "":
		out.diskError = stderr.diskError
	}
	err = exitErrorOf(c.tool, waitErr, out.tail, oomKillCount() > killings)
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		if why := sandbox.Failure(exit.code, exit.tail); why != "" {
			return out, fmt.Errorf("%w: %s: %s", ErrSandbox, c.tool, why)
		}
	}
	return out, err
}

// environment is what a child may know: enough to find its libraries, a language
// whose messages can be read, and its own directory for temporary files. Proxies,
// report files, the user's home and the rest of this process's environment are not
// its business.
func environment(dir string) []string {
	env := []string{"LC_ALL=C", "AV_LOG_FORCE_NOCOLOR=1"}
	if dir != "" {
		env = append(env, "TMPDIR="+dir)
	}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// sourceURL turns a path into the one form that ffmpeg reads as nothing but a
// file, whatever characters it has.
func sourceURL(path string) (abs, url string, err error) {
	abs, err = filepath.Abs(path)
	if err != nil {
		return "", "", fmt.Errorf("find source: %w", err)
	}
	return abs, "file:" + abs, nil
}

// demuxers are the containers that may be opened. Everything that could make
// ffmpeg open a second file or a connection is left out: playlists, concat
// scripts, session descriptions, image sequences, virtual devices.
var demuxers = strings.Join([]string{
	"mov", "matroska", "webm", "avi", "flv", "live_flv", "mpegts", "mpeg", "mpegvideo", "asf", "ogg", "mxf", "gxf",
	"nut", "rm", "dv", "ivf", "h264", "hevc", "vvc", "av1", "obu", "m4v", "h263", "vc1", "yuv4mpegpipe", "nsv", "gif", "apng",
	"wav", "w64", "aiff", "mp3", "aac", "flac", "ac3", "eac3", "dts", "dtshd", "truehd", "amr", "caf", "au", "ape",
	"wv", "tta", "tak", "loas", "mpc", "mpc8",
}, ",")

// input is how every source is given to a child. The limit on pixels holds for
// whatever is decoded of it, covers included, before memory is taken for a frame.
func input(url string, options ...string) []string {
	args := append([]string{
		"-protocol_whitelist", "file", "-format_whitelist", demuxers, "-max_pixels", strconv.Itoa(maxPixels),
	}, options...)
	return append(args, "-i", url)
}
