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
	Ladder  Command   // makes all renditions
	PerRung []Command // one for each rung, as if the ladder had no other
}

// RecordCommands returns the commands with which Cuelight would transcode a source, without
// running them. It writes below dir, which must be empty.
func RecordCommands(ctx context.Context, source, dir string) (all Commands, err error) {
	r, err := newRecorder(dir, true)
	if err != nil {
		return all, err
	}
	tools := media.Tools{FFmpeg: r.script, Sandbox: media.SandboxOff} // the script writes outside the sandbox
	info, err := tools.Probe(ctx, source)
	if err != nil {
		return all, err
	}
	ladder := media.Ladder(info)
	if all.Ladder, err = r.record(ctx, tools, source, info, ladder); err != nil {
		return all, err
	}
	for i := range ladder {
		each, err := r.record(ctx, tools, source, info, ladder[i:i+1])
		if err != nil {
			return all, err
		}
		all.PerRung = append(all.PerRung, each)
	}
	return all, nil
}

// recorder is a script in place of ffmpeg that records the arguments of a transcode. It then
// runs ffmpeg, except for transcodes in a dry run.
type recorder struct{ dir, script, file string }

// recorderScript ends each argument with a 0, which no argument contains.
const recorderScript = `#!/bin/sh
case " $* " in *" hls "*) printf '%%s\0' "$@" >>%s%s;; esac
exec %s "$@"
`

func newRecorder(dir string, dryRun bool) (r recorder, err error) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		return r, err
	}
	r = recorder{dir: dir, script: filepath.Join(dir, "ffmpeg"), file: filepath.Join(dir, "arguments")}
	exit := ""
	if dryRun {
		exit = "; exit 1"
	}
	text := fmt.Sprintf(recorderScript, quote(r.file), exit, quote(ffmpeg))
	return r, os.WriteFile(r.script, []byte(text), 0o755)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// record transcodes a ladder in a dry run and returns the recorded command.
func (r recorder) record(
	ctx context.Context, tools media.Tools, source string, info *media.Info, ladder []media.Rung,
) (Command, error) {
	out, err := os.MkdirTemp(r.dir, "out-")
	if err != nil {
		return nil, err
	}
	if _, err = tools.Transcode(ctx, source, info, ladder, out, nil); err == nil {
		return nil, errors.New("a dry run succeeded")
	}
	c, takeErr := r.take()
	if takeErr != nil {
		return nil, errors.Join(takeErr, err)
	}
	return c.soundFrom("file:" + source), nil
}

// take returns the command that was recorded since the last call.
func (r recorder) take() (Command, error) {
	text, err := os.ReadFile(r.file)
	if err != nil {
		return nil, fmt.Errorf("read ffmpeg's arguments: %w", err)
	}
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if isStart := func(arg string) bool { return arg == "-nostdin" }; !slices.Contains(args, "-i") ||
		slices.ContainsFunc(args[1:], isStart) {
		return nil, fmt.Errorf("%w: not one command in %q", errUnexpectedCommand, args)
	}
	return args, os.Remove(r.file)
}

// pipeOptions is how many arguments before a pipe are its options.
const pipeOptions = 7

// soundFrom returns the command with a source in place of the pipes from which Cuelight's reads the sound, so that it is
// one ffmpeg that does all. The sound must be stream 1 of the source.
func (c Command) soundFrom(source string) Command {
	c = slices.Clone(c)
	for i := len(c) - 1; i >= pipeOptions; i-- {
		if c[i-1] == "-i" && strings.HasPrefix(c[i], "pipe:") {
			c = slices.Replace(c, i-pipeOptions, i+1, "-i", source)
		}
	}
	return c
}

// equalsExceptSource reports whether two commands differ in their source at most.
func (c Command) equalsExceptSource(other Command) bool {
	return slices.Equal(c.withoutSource(), other.withoutSource())
}

func (c Command) withoutSource() Command {
	c = c.soundFrom("")
	for i := range c {
		if i > 0 && c[i-1] == "-i" {
			c[i] = ""
		}
	}
	return c
}

// makeDirs creates the directories that the command writes to.
func (c Command) makeDirs(dir string) error {
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
