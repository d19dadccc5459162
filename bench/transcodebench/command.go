package transcodebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/media"
)

// Command is the arguments of an ffmpeg.
type Command []string

// Commands are those for a source.
type Commands struct {
	Whole Command   // makes all renditions
	Each  []Command // one for each rung, as if the ladder had no other
}

// CommandsFor finds out how Cuelight would have a source transcoded, without
// doing it. It writes below dir, which must be empty.
func RecordCommands(ctx context.Context, source, dir string) (all Commands, err error) {
	r, err := newRecorder(dir, true)
	if err != nil {
		return all, err
	}
	tools := media.Tools{FFmpeg: r.script, Sandbox: media.SandboxOff} // it writes elsewhere
	info, err := tools.Probe(ctx, source)
	if err != nil {
		return all, err
	}
	ladder := media.Ladder(info)
	if all.Whole, err = r.command(ctx, tools, source, info, ladder); err != nil {
		return all, err
	}
	for i := range ladder {
		each, err := r.command(ctx, tools, source, info, ladder[i:i+1])
		if err != nil {
			return all, err
		}
		all.Each = append(all.Each, each)
	}
	return all, nil
}

// recorder is a script that stands in for ffmpeg and writes the arguments of a
// transcode down. For everything else it is ffmpeg, and so for that, unless it
// only rehearses.
type recorder struct{ dir, script, record string }

// The end of each argument is a 0, which none can have in it.
const recorderScript = `#!/bin/sh
case " $* " in *" hls "*) printf '%%s\0' "$@" >>%s%s;; esac
exec %s "$@"
`

func newRecorder(dir string, rehearse bool) (r recorder, err error) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		return r, err
	}
	r = recorder{dir: dir, script: filepath.Join(dir, "ffmpeg"), record: filepath.Join(dir, "arguments")}
	end := ""
	if rehearse {
		end = "; exit 1"
	}
	text := fmt.Sprintf(recorderScript, quoted(r.record), end, quoted(ffmpeg))
	return r, os.WriteFile(r.script, []byte(text), 0o755)
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// take returns the command that was written down since the last time.
func (r recorder) take() (Command, error) {
	text, err := os.ReadFile(r.record)
	if err != nil {
		return nil, fmt.Errorf("read ffmpeg's arguments: %w", err)
	}
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if n := len(args) - len(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-i" })); n != 1 {
		return nil, fmt.Errorf("%w: %d sources in %q", errUnexpectedCommand, n, args)
	}
	return args, os.Remove(r.record)
}

// command has a ladder transcoded in rehearsal.
func (r recorder) command(ctx context.Context, tools media.Tools, source string, info *media.Info, ladder []media.Rung) (c Command, err error) {
	out, err := os.MkdirTemp(r.dir, "out-")
	if err != nil {
		return nil, err
	}
	if _, err = tools.Transcode(ctx, source, info, ladder, out, nil); err == nil {
		return nil, errors.New("a rehearsal succeeded")
	}
	c, takeErr := r.take()
	if takeErr != nil {
		return nil, errors.Join(takeErr, err)
	}
	return c, nil
}

// same reports whether a command differs from another in its source alone.
func (c Command) equalsExceptSource(other Command) bool {
	return slices.Equal(c.anonymous(), other.anonymous())
}

func (c Command) anonymous() Command {
	c = slices.Clone(c)
	if i := slices.Index(c, "-i"); i >= 0 && i+1 < len(c) {
		c[i+1] = ""
	}
	return c
}

// makeFolders makes those that the command writes to.
func (c Command) makeFolders(dir string) error {
	for i, arg := range c {
		name, ok := strings.CutPrefix(arg, "file:")
		if !ok || c[i-1] == "-i" || !filepath.IsLocal(name) {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			return err
		}
	}
	return nil
}
