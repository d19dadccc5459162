package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/sandbox"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
)

func checkPostgreSQL(context.Context) (found []finding) {
	programs, err := postgres.Find()
	if err != nil {
		return errorFinding(err)
	}
	for _, p := range programs {
		found = append(found, ok("%s in %s", p.Version, p.Dir)...)
	}
	return found
}

func checkProgram(ctx context.Context, program string) []finding {
	path, err := exec.LookPath(program)
	if err != nil {
		return failure(program+" is not installed or cannot be run", installHint("ffmpeg"))
	}
	out, err := exec.CommandContext(ctx, path, "-version").Output()
	if err != nil {
		return failure(fmt.Sprintf("%s cannot be run: %s", path, usererr.SystemMessage(err)), installHint("ffmpeg"))
	}
	first, _, _ := strings.Cut(string(out), " Copyright")
	return ok("%s (%s)", strings.TrimSpace(first), path)
}

// The parts of ffmpeg that the stages require, and those that improve the result.
var (
	neededEncoders  = []string{"libx264", "aac"}
	neededFilters   = []string{"scale", "split", "fps", "aresample", "pad", "premultiply", "transpose", "yadif", "colorspace"}
	optionalFilters = []struct{ name, without string }{
		{"zscale", "HDR and wide colours are approximate"}, {"tonemap", "HDR and wide colours are approximate"},
		{"bwdif", "interlaced video looks less sharp"},
	}
)

const partFix = "use an ffmpeg that is built with it: your system's full package, or one from ffmpeg.org (--ffmpeg)"

func (d *doctor) checkEncoders(ctx context.Context) []finding {
	return checkParts(d.parts(ctx, "-encoders"), neededEncoders, strings.Join(neededEncoders, ", "))
}

func (d *doctor) checkFilters(ctx context.Context) []finding {
	parts := d.parts(ctx, "-filters")
	found := checkParts(parts, neededFilters, "all required filters")
	for _, f := range optionalFilters {
		if !parts[f.name] {
			found = append(found, warning("ffmpeg has no "+f.name+": "+f.without, partFix)...)
		}
	}
	return found
}

// parts returns the names that ffmpeg lists for an option.
func (d *doctor) parts(ctx context.Context, option string) map[string]bool {
	out, _ := exec.CommandContext(ctx, d.o.ffmpeg, "-nostdin", "-hide_banner", "-loglevel", "error", option).Output()
	names := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			for name := range strings.SplitSeq(fields[1], ",") {
				names[name] = true
			}
		}
	}
	return names
}

func checkParts(parts map[string]bool, needed []string, complete string) []finding {
	missing := slices.DeleteFunc(slices.Clone(needed), func(name string) bool { return parts[name] })
	if len(missing) > 0 {
		return failure("ffmpeg has no "+strings.Join(missing, ", "), partFix)
	}
	return ok("%s", complete)
}

// checkSandbox checks how far this host can sandbox ffmpeg, which reads untrusted files,
// and runs ffmpeg in the sandbox.
func (d *doctor) checkSandbox(ctx context.Context) (found []finding) {
	for _, l := range sandbox.Layers() {
		result := ok("%s: %s", l.Name, l.Detail)
		if !l.Offered {
			result = warning(l.Name+": "+l.Detail, sandboxFix(l.Name))
		}
		found = append(found, result...)
	}
	tools, err := d.tools()
	if err != nil {
		return append(found, failure(err.Error(), "correct the flag or its environment variable")...)
	}
	return append(found, checkSandboxedStart(ctx, tools)...)
}

func (d *doctor) tools() (media.Tools, error) {
	tools := media.Tools{FFmpeg: d.o.ffmpeg, FFprobe: d.o.ffprobe, Memory: int64(d.o.maxMemory)}
	if err := d.o.setSandbox(&tools); err != nil {
		return tools, err
	}
	return tools, d.o.setEncoders(&tools)
}

// tryEncoders tries libx264, and the hardware encoders whose devices are there even if --encoders does not
// have them.
func (d *doctor) tryEncoders(ctx context.Context) (found []finding) {
	tools, err := d.tools()
	if err != nil {
		return nil // checkSandbox has reported it
	}
	used := tools.Encoders
	tools.Encoders = []string{"hardware"}
	trials, err := tools.TryEncoders(ctx)
	if err != nil {
		return errorFinding(err)
	}
	for _, trial := range trials {
		if trial.IsWanted && (trial.IsHardware || trial.Failure != "") {
			found = append(found, triedEncoder(trial, slices.Contains(used, trial.Name))...)
		}
	}
	for _, name := range d.o.encoders {
		isTried := func(t media.EncoderTrial) bool {
			return t.IsHardware && t.IsWanted && (t.Name == name || name == "hardware")
		}
		if name != "libx264" && !slices.ContainsFunc(trials, isTried) {
			found = append(found, warning("--encoders "+name+": there is no device for it, so libx264 encodes",
				"run cuelight doctor where cuelight runs, such as in its container, or correct --encoders")...)
		}
	}
	return found
}

// triedEncoder is the finding of an encoder whose device is there.
func triedEncoder(trial media.EncoderTrial, isUsed bool) []finding {
	switch {
	case !trial.IsHardware:
		return failure(trial.Name+" does not work: "+trial.Failure, "install ffmpeg again, from your distribution")
	case trial.Failure == "" && isUsed:
		return ok("%s works", trial.Name)
	case trial.Failure == "":
		return ok("%s works; --encoders %s uses it", trial.Name, trial.Name)
	case isUsed:
		return warning(trial.Name+" does not work, so libx264 encodes: "+trial.Failure,
			cmp.Or(trial.Hint, "install the driver of the card, and check it with vainfo or nvidia-smi"))
	}
	return ok("%s, which --encoders does not have, would not work: %s", trial.Name, trial.Failure)
}

func checkSandboxedStart(ctx context.Context, tools media.Tools) []finding {
	if tools.Sandbox == media.SandboxOff {
		return warning("ffmpeg is not sandboxed (--sandbox off): a malicious file could do everything that cuelight may do",
			"use --media-readable to allow what ffmpeg needs")
	}
	if _, err := tools.Version(ctx); err != nil {
		return failure("a sandboxed ffmpeg does not start: "+usererr.FirstLine(err.Error()),
			"allow what it needs with --media-readable, or use --sandbox off")
	}
	who := fmt.Sprintf("user %d", os.Geteuid())
	if sandbox.CanChangeUser(tools.User) {
		who = fmt.Sprintf("user %d (--media-user)", tools.User)
	}
	memory := "any amount of memory"
	if most := tools.MemoryLimit(); most > 0 {
		memory = fmt.Sprintf("at most %s of memory (--max-memory)", console.Size(most))
	}
	return ok("ffmpeg runs as %s with %s", who, memory)
}

func sandboxFix(layer string) string {
	switch layer {
	case "Landlock":
		return "use Linux 5.13 or newer with Landlock on; in a container, a seccomp profile that allows it"
	case "account":
		return "run cuelight as a user of its own, or give its container the capabilities back"
	}
	return "use Linux on x86-64 or ARM64"
}

func (d *doctor) checkDataDir(ctx context.Context) []finding {
	if storage.IsAddress(d.c.DataDir) {
		return d.checkBucket(ctx, d.c.DataDir)
	}
	dir, err := d.c.DataPath()
	if err != nil {
		return errorFinding(err)
	}
	return checkDirectory("data", dir)
}

func (d *doctor) checkPublishDir(ctx context.Context) []finding {
	switch {
	case storage.IsAddress(d.c.PublishDir):
		return d.checkBucket(ctx, d.c.PublishDir)
	case d.c.PublishDir == "" && storage.IsAddress(d.c.DataDir):
		return nil // checkDataDir has checked the bucket
	}
	dir, err := d.c.PublishPath()
	if err != nil {
		return errorFinding(err)
	}
	return checkDirectory("publish", dir)
}

// checkBucket writes to a bucket and deletes what it wrote.
func (d *doctor) checkBucket(ctx context.Context, text string) (found []finding) {
	address, err := storage.ParseAddress(text, d.c.Env.Get)
	if err != nil {
		return failure(err.Error(), "correct it; docs/storage.md describes addresses and their variables")
	}
	bucket, err := storage.Open(address, storage.Options{})
	if err != nil {
		if e, ok := errors.AsType[*storage.ServiceError](err); ok {
			return failure(e.Text, e.Hint)
		}
		return errorFinding(err)
	}
	defer bucket.Close()
	for _, f := range bucket.Check(ctx) {
		found = append(found, finding{Status: f.Status, Detail: f.Detail, Fix: f.Fix})
	}
	return found
}

// lowSpace is the free space below which doctor warns.
const lowSpace = 10 << 30

// checkDirectory checks a directory, or the nearest parent that exists.
func checkDirectory(kind, dir string) []finding {
	at, note := dir, ""
	for {
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		at, note = filepath.Dir(at), " (it will be created)"
	}
	if err := dbconn.CheckWritable(at); err != nil {
		return failure(fmt.Sprintf("%s cannot be written to: %s", at, usererr.SystemMessage(err)),
			fmt.Sprintf("fix it, or set another directory with --%s-dir", kind))
	}
	free, _, err := diskspace.Free(at)
	switch {
	case err != nil:
		return ok("%s%s", dir, note)
	case free < lowSpace:
		return warning(fmt.Sprintf("%s%s has %s left", dir, note, console.Size(free)),
			"free some space: sources and renditions are kept until a task is deleted; cuelight du says what takes it")
	}
	return ok("%s%s, %s free", dir, note, console.Size(free))
}
