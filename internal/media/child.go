package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

const (
	defaultStall = 2 * time.Minute
	// reapDelay is how long a killed child's pipes may stay open.
	reapDelay = 5 * time.Second
)

// child is one run of ffmpeg or ffprobe.
type child struct {
	tool string // "ffmpeg" or "ffprobe"
	args []string
	dir  string // working folder; relative names in args are below it
	// source is the input's absolute path. It is kept out of what the child
	// says, so that error texts show nothing of this host.
	source string
	stdout io.Writer // nil: discarded
	// quiet means that the child is not expected to write to stdout all the
	// time; then Stall bounds the whole run.
	quiet bool
}

// said is what a child left on stderr.
type said struct {
	tail   string
	errors int64
}

// exitError is a child that ended badly for a reason not known better.
type exitError struct {
	tool   string
	code   int // -1 when a signal ended it
	signal string
	tail   string
}

func (e *exitError) Error() string {
	what := fmt.Sprintf("%s ended with code %d", e.tool, e.code)
	if e.signal != "" {
		what = fmt.Sprintf("%s was killed by a signal (%s)", e.tool, e.signal)
	}
	if e.tail == "" {
		return what
	}
	return what + ": " + e.tail
}

// path finds the program.
func (t Tools) path(tool string) (string, error) {
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

// run starts a child and waits for it. The child is gone when run returns,
// whatever happened. An exit code other than zero is an *exitError.
func (t Tools) run(ctx context.Context, c child) (said, error) {
	path, err := t.path(c.tool)
	if err != nil {
		return said{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	pulse := &pulse{next: c.stdout}
	stderr := &stderrTail{source: c.source}
	cmd := exec.CommandContext(ctx, path, c.args...)
	cmd.Dir = c.dir
	cmd.Env = childEnv()
	cmd.Stdout = pulse
	cmd.Stderr = stderr
	cmd.WaitDelay = reapDelay
	ownGroup(cmd)

	// The signal sent to a child at its parent's death is bound to the thread
	// that started it, so that thread must not end before the child does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return said{}, fmt.Errorf("start %s: %w", c.tool, err)
	}
	soften(cmd.Process.Pid, t.Nice)

	watched := make(chan struct{})
	go func() {
		defer close(watched)
		t.watch(ctx, cancel, pulse, c.quiet)
	}()
	waitErr := cmd.Wait()
	cause := context.Cause(ctx)
	cancel(nil)
	<-watched

	out := stderr.said()
	switch {
	case cause != nil:
		return out, fmt.Errorf("run %s: %w", c.tool, cause)
	case stderr.noSpace:
		return out, fmt.Errorf("run %s: %w", c.tool, ErrNoSpace)
	}
	return out, childError(c.tool, waitErr, out.tail)
}

func childError(tool string, err error, tail string) error {
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		if err != nil {
			return fmt.Errorf("run %s: %w", tool, err)
		}
		return nil
	}
	return &exitError{tool: tool, code: exit.ExitCode(), signal: signalName(exit.ProcessState), tail: tail}
}

// watch cancels the child when its pulse stops.
func (t Tools) watch(ctx context.Context, cancel context.CancelCauseFunc, p *pulse, quiet bool) {
	stall := t.Stall
	if stall <= 0 {
		stall = defaultStall
	}
	beats := p.beats.Load()
	timer := time.NewTimer(stall)
	defer timer.Stop()
	tick := time.NewTicker(max(stall/16, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			cancel(fmt.Errorf("%w for %v", ErrStalled, stall))
			return
		case <-tick.C:
			if now := p.beats.Load(); now != beats && !quiet {
				beats = now
				timer.Reset(stall)
			}
		}
	}
}

// pulse passes stdout on and counts signs of life. A writer that knows better
// than "there was output" says so by being a beater.
type pulse struct {
	next  io.Writer
	beats atomic.Int64
}

type beater interface{ beat() int64 }

func (p *pulse) Write(b []byte) (int, error) {
	if p.next == nil {
		p.beats.Add(1)
		return len(b), nil
	}
	n, err := p.next.Write(b)
	if w, ok := p.next.(beater); ok {
		p.beats.Store(w.beat())
	} else {
		p.beats.Add(1)
	}
	return n, err
}

// childEnv is what a child may know: enough to find its libraries, and a
// language whose messages can be read. Proxies, report files and the rest of
// this process's environment are not its business.
func childEnv() []string {
	env := []string{"LC_ALL=C", "AV_LOG_FORCE_NOCOLOR=1"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
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
	"nut", "rm", "dv", "ivf", "h264", "hevc", "vvc", "av1", "obu", "m4v", "h263", "vc1", "yuv4mpegpipe", "nsv", "gif",
	"wav", "w64", "aiff", "mp3", "aac", "flac", "ac3", "eac3", "dts", "dtshd", "truehd", "amr", "caf", "au", "ape",
	"wv", "tta", "tak", "loas", "mpc", "mpc8",
}, ",")

// input is how every source is given to a child.
func input(url string, options ...string) []string {
	args := append([]string{"-protocol_whitelist", "file", "-format_whitelist", demuxers}, options...)
	return append(args, "-i", url)
}
