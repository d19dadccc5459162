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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
)

// command is one run of ffmpeg or ffprobe.
type command struct {
	tool    string // "ffmpeg", "ffprobe" or "whisper-cli"
	purpose string // a word or two, for traces
	args    []string
	dir     string // working directory; relative names in args are below it
	// source is the input's absolute path, of whisper-cli that of its model. It is removed from
	// messages, so that errors show nothing of this host.
	source string
	device *device    // the graphics card that the child may use; nil for none
	stdin  io.Reader  // nil: empty
	stdout io.Writer  // nil: discarded
	pipes  []*os.File // what the child may read, from firstPipe on
	// noProgress means that the child does not write to stdout all the time;
	// then Stall limits the whole run.
	noProgress bool
}

// stderrReport is what a child wrote to stderr, and the time it used.
type stderrReport struct {
	tail   string
	errors int64
	cpu    time.Duration
	// diskError is a disk error that a child with a directory reported, and
	// that could not be confirmed.
	diskError error
}

// run starts a child and waits for it. The child and its descendants are gone
// when run returns. An exit code other than zero is an *exitError.
func (t Tools) run(ctx context.Context, c command) (stderrReport, error) {
	ctx, span := c.startSpan(ctx)
	out, err := t.execute(ctx, c)
	c.endSpan(span, out, err)
	return out, err
}

func (t Tools) execute(ctx context.Context, c command) (stderrReport, error) {
	path, err := t.toolPath(c.tool)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("run %s: %w", c.tool, context.Cause(ctx))
	}
	if err != nil {
		return stderrReport{}, err
	}
	stdout, stderr := &stdoutMonitor{next: c.stdout}, &stderrTail{source: c.source}
	cmd := exec.Command(path, c.args...)
	cmd.Dir, cmd.Env = cmp.Or(c.dir, "/"), append(environment(c.dir), c.device.environment()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, stdout, stderr
	cmd.ExtraFiles = slices.Clone(c.pipes)
	oomKills := oomKillCount()
	grant, err := t.applySandbox(ctx, cmd, c)
	if err != nil {
		return stderrReport{}, fmt.Errorf("start %s: %w", c.tool, err)
	}
	defer grant.release()
	stderr.sandboxURL = grant.url

	child, err := childproc.Start(cmd, childproc.Options{Session: true}) // see lowerSessionPriority
	if err != nil {
		return stderrReport{}, err
	}
	files := t.fileLimit(c.dir)
	cause := t.waitAndWatch(ctx, child, stdout, c.noProgress, files)
	cause = cmp.Or(cause, files.check(), grant.release())
	if grant.input != nil && ctx.Err() == nil {
		cause = grant.input.failure(cause, t.stall())
	}
	out := stderr.report()
	out.cpu = child.State().UserTime() + child.State().SystemTime()
	if c.dir != "" { // a child without a directory writes nothing
		out.diskError = stderr.diskError
	}
	if cause == nil && out.diskError != nil && isDiskErrorConfirmed(c.dir, out.diskError) {
		cause = out.diskError
	}
	if cause != nil {
		return out, fmt.Errorf("run %s: %w", c.tool, cause)
	}
	return out, exitErrorOf(c.tool, child.Err(), out.tail, oomKillCount() > oomKills)
}

// waitAndWatch waits until the child has ended. If it was killed, waitAndWatch returns
// the cause.
func (t Tools) waitAndWatch(
	ctx context.Context, child *childproc.Process, stdout *stdoutMonitor, noProgress bool, files *fileLimit,
) (cause error) {
	ctx, cancel := context.WithCancelCause(ctx)
	lowerPriority(child.PID(), t.Nice)
	var watchers sync.WaitGroup
	watchers.Go(func() { lowerSessionPriority(ctx, child.PID(), t.Nice) })
	watchers.Go(func() { t.watch(ctx, cancel, stdout, noProgress, files, child.PID()) })
	_ = child.Wait(ctx)
	cause = context.Cause(ctx)
	cancel(nil)
	watchers.Wait()
	if cause == nil {
		t.step()
	}
	return cause
}

// toolPath finds the program.
func (t Tools) toolPath(tool string) (string, error) {
	given := map[string]string{"ffmpeg": t.FFmpeg, "ffprobe": t.FFprobe, whisper: t.Whisper}
	p, err := exec.LookPath(cmp.Or(given[tool], tool))
	if err != nil {
		return "", fmt.Errorf("%w: %s (%w)", ErrToolMissing, tool, errors.Unwrap(err))
	}
	// A relative path would be resolved in the child's working directory.
	return filepath.Abs(p)
}

// environment is the child's environment: where to find libraries, untranslated
// messages, and its own directory for temporary files. It contains no proxies,
// home directory or secrets of this process.
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

// demuxers are the permitted containers. Formats that could make ffmpeg open a
// second file or a connection are missing: playlists, concat scripts, session
// descriptions, image sequences, virtual devices.
var demuxers = strings.Join([]string{
	"mov", "matroska", "webm", "avi", "flv", "live_flv", "mpegts", "mpeg", "mpegvideo", "asf", "ogg", "mxf", "gxf",
	"nut", "rm", "dv", "wtv", "ivf", "h264", "hevc", "vvc", "av1", "obu", "m4v", "h263", "vc1", "dnxhd", "jpeg_pipe",
	"mjpeg", "yuv4mpegpipe", "nsv", "gif", "apng", "wav", "w64", "aiff", "voc", "mlp",
	"mp3", "aac", "flac", "ac3", "eac3", "dts", "dtshd", "truehd", "amr", "caf", "au", "ape",
	"wv", "tta", "tak", "loas", "mpc", "mpc8",
}, ",")

// quiet are the options that make ffmpeg and ffprobe print errors alone, with their
// level, and each of them.
var quiet = []string{"-hide_banner", "-loglevel", "repeat+level+error"}

// ffmpegArgs returns the first arguments of every ffmpeg.
func (t Tools) ffmpegArgs(args ...string) []string {
	return slices.Concat([]string{"-nostdin", "-y"}, quiet, t.threads(), args)
}

// input returns the options for reading a source, given by its absolute path. The pixel
// limit applies to everything that is decoded, covers included, before memory is
// allocated. With "file:", ffmpeg reads any path as a file.
func input(source string, options ...string) []string {
	args := append([]string{
		"-protocol_whitelist", "file", "-format_whitelist", demuxers, "-max_pixels", strconv.Itoa(maxPixels),
	}, options...)
	return append(args, "-i", "file:"+source)
}
