package main

import (
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
	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/usererr"
)

// The parts of ffmpeg that the stages require, and the consequence of each missing optional part.
var (
	neededEncoders = []string{"libx264", "aac"}
	neededFilters  = []string{"scale", "split", "fps", "aresample", "premultiply", "transpose", "yadif"}
	betterFilters  = map[string]string{
		"zscale": "HDR video gets rougher colours", "tonemap": "HDR video gets rougher colours",
		"bwdif": "interlaced video looks less sharp",
	}
)

func (d *doctor) checkPrograms(ctx context.Context) {
	if d.c.Source().Private {
		bins, err := postgres.Find("")
		if err != nil {
			p := dbconn.Explain(err)
			d.wrong("postgresql", p.Text, p.Hint)
		}
		for _, b := range bins {
			d.ok("postgresql", "%s in %s", b.Version, b.Dir)
		}
	}
	for _, program := range []string{d.o.ffmpeg, d.o.ffprobe} {
		d.checkVersion(ctx, program)
	}
	if _, err := exec.LookPath(d.o.ffmpeg); err == nil {
		d.checkParts(ctx)
		d.checkSandbox(ctx)
	}
}

func (d *doctor) checkVersion(ctx context.Context, program string) {
	check := filepath.Base(program)
	path, err := exec.LookPath(program)
	if err != nil {
		d.wrong(check, program+" is not installed or cannot be run", installHint("ffmpeg"))
		return
	}
	out, err := exec.CommandContext(ctx, path, "-version").Output()
	if err != nil {
		d.wrong(check, fmt.Sprintf("%s cannot be run: %s", path, usererr.SystemMessage(err)), installHint("ffmpeg"))
		return
	}
	first, _, _ := strings.Cut(string(out), " Copyright")
	d.ok(check, "%s (%s)", strings.TrimSpace(first), path)
}

// checkParts checks ffmpeg's encoders and filters.
func (d *doctor) checkParts(ctx context.Context) {
	offered := func(what string) []string {
		out, _ := exec.CommandContext(ctx, d.o.ffmpeg, "-nostdin", "-hide_banner", "-loglevel", "error", what).Output()
		var names []string
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); len(fields) > 1 {
				names = append(names, strings.Split(fields[1], ",")...)
			}
		}
		return names
	}
	lacks := func(names, needed []string) (missing []string) {
		for _, n := range needed {
			if !slices.Contains(names, n) {
				missing = append(missing, n)
			}
		}
		return missing
	}
	const fix = "use an ffmpeg that is built with it: your system's full package, or one from ffmpeg.org (--ffmpeg)"
	if missing := lacks(offered("-encoders"), neededEncoders); len(missing) > 0 {
		d.wrong("encoders", "ffmpeg has no "+strings.Join(missing, ", "), fix)
	} else {
		d.ok("encoders", "%s", strings.Join(neededEncoders, ", "))
	}
	filters := offered("-filters")
	if missing := lacks(filters, neededFilters); len(missing) > 0 {
		d.wrong("filters", "ffmpeg has no "+strings.Join(missing, ", "), fix)
	} else {
		d.ok("filters", "all required filters")
	}
	for _, name := range []string{"zscale", "tonemap", "bwdif"} {
		if !slices.Contains(filters, name) {
			d.warn("filters", "ffmpeg has no "+name+": "+betterFilters[name], fix)
		}
	}
}

func (d *doctor) checkDirectories() {
	data, err := d.c.DataPath()
	if err != nil {
		p := dbconn.Explain(err)
		d.wrong("data", p.Text, p.Hint)
		return
	}
	d.checkDirectory("data", data)
	if published, err := d.c.PublishPath(); err == nil {
		d.checkDirectory("published", published)
	}
}

// lowSpace is the free space below which doctor warns.
const lowSpace = 10 << 30

// checkDirectory checks a directory, or the nearest parent that exists.
func (d *doctor) checkDirectory(check, dir string) {
	at, note := dir, ""
	for {
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		at, note = filepath.Dir(at), " (it will be created)"
	}
	if err := dbconn.CheckWritable(at); err != nil {
		what := "data"
		if check == "published" {
			what = "publish"
		}
		d.wrong(check, fmt.Sprintf("%s cannot be written to: %s", at, usererr.SystemMessage(err)),
			fmt.Sprintf("fix it, or set another directory with --%s-dir", what))
		return
	}
	free, err := fetch.FreeSpace(at)
	switch {
	case err != nil:
		d.ok(check, "%s%s", dir, note)
	case free < lowSpace:
		d.warn(check, fmt.Sprintf("%s%s has %s left", dir, note, console.Size(free)),
			"free some space: sources and renditions are kept until a task is deleted")
	default:
		d.ok(check, "%s%s, %s free", dir, note, console.Size(free))
	}
}
