package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// comparison measures Cuelight and an earlier revision of it in turns: each run is a process of
// its own, with a server of its own.
type comparison struct {
	options
	programs []program // before, now
	result   *report.Result
	log      *progresslog.Log
}

// program is a benchmark that was built with a revision of Cuelight.
type program struct {
	path, dir string // the working directory
	suffix    string // of the systems, in the result
}

// compare measures in rounds. Each round has all scenarios that measure Cuelight. The programs alternate in which one runs
// first.
func compare(ctx context.Context, o options, out io.Writer) (err error) {
	c := comparison{options: o, result: report.New(o.mode.String()), log: progresslog.New(out)}
	if c.dir, err = filepath.Abs(o.dir); err != nil { // the programs have other working directories
		return err
	}
	tree, err := os.MkdirTemp(c.dir, "cuelight-bench-against-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	if err := c.build(ctx, tree); err != nil {
		return err
	}
	scenarios := c.scenarios()
	for round := range max(o.rounds, 1) {
		for i, name := range scenarios {
			for n := range c.programs {
				p := c.programs[(n+round+i)%2]
				if err := c.measure(ctx, p, name, tree); err != nil {
					return err
				}
			}
		}
	}
	c.log.Printf("\n")
	return report.PrintComparison(out, c.result, "cuelight"+before, o.against)
}

// before ends the name of a system of the earlier revision.
const before = "_before"

// scenarios are those that measure Cuelight, by their first names.
func (o options) scenarios() (names []string) {
	for _, g := range plan(o.mode) {
		for _, r := range o.selectFrom(g).Runs {
			if name := r.Scenario.Names[0]; r.SystemName() == "cuelight" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// build checks out the revision into a directory and builds this benchmark with it and with the sources here, so that
// both programs measure in the same way.
func (c *comparison) build(ctx context.Context, tree string) error {
	project := proofkit.ProjectDir()
	if project == "" {
		return errors.New("-against needs the sources of Cuelight")
	}
	if err := checkOut(ctx, project, c.against, tree); err != nil {
		return err
	}
	beforeDir, nowDir := filepath.Join(tree, "bench"), filepath.Join(project, "bench")
	if err := replaceDir(beforeDir, nowDir); err != nil {
		return fmt.Errorf("copy the benchmark: %w", err)
	}
	c.programs = []program{
		{filepath.Join(tree, "bench-before"), beforeDir, before}, {filepath.Join(tree, "bench-now"), nowDir, ""},
	}
	for i, modules := range []string{"-mod=mod", "-mod=readonly"} { // the revision may need other modules
		p := c.programs[i]
		err := proofkit.Execute(ctx, "env", "CGO_ENABLED=0", "GOWORK=off",
			"go", "build", "-C", p.dir, modules, "-trimpath", "-buildvcs=false", "-o", p.path, ".")
		if err != nil {
			return fmt.Errorf("build the benchmark%s: %w", p.suffix, err)
		}
	}
	return nil
}

// checkOut writes the files of a revision of a project into a directory.
func checkOut(ctx context.Context, project, revision, dir string) error {
	archive := filepath.Join(dir, "revision.tar")
	err := proofkit.Execute(ctx, "git", "-C", project, "archive", "--format=tar", "-o", archive, revision)
	if err == nil {
		err = proofkit.Execute(ctx, "tar", "-x", "-f", archive, "-C", dir)
	}
	if err != nil {
		return fmt.Errorf("check out %s: %w", revision, err)
	}
	return nil
}

func replaceDir(dir, with string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(with))
}

// measure runs one scenario once with a program, and adds its figures to the result.
func (c *comparison) measure(ctx context.Context, p program, scenario, dir string) error {
	out, err := os.MkdirTemp(dir, "result-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	args := []string{
		"-rounds", "1", "-only", scenario, "-systems", "cuelight", "-dir", c.dir, "-out", out,
		"-set", strings.Join(c.settings, ","),
	}
	if c.mode != full {
		args = append(args, "-"+c.mode.String())
	}
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "CUELIGHT_TEST_MEDIA="+mediaDir())
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s%s: %w: %s", scenario, p.suffix, err, strings.TrimSpace(string(text)))
	}
	files, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil || len(files) != 1 {
		return errors.Join(err, fmt.Errorf("%s%s: %d results", scenario, p.suffix, len(files)))
	}
	r, err := report.Read(files[0])
	if err != nil {
		return err
	}
	for _, f := range r.Figures {
		if f.System != "cuelight" {
			continue
		}
		key := f.Key
		key.System += p.suffix
		for _, round := range f.Rounds {
			c.result.Add(key, f.Unit, round)
		}
		c.log.Logf("%-48s %10.4g %s", key, f.Median(), f.Unit)
	}
	for what, reason := range r.Skipped {
		c.log.Logf("skipped%s: %s: %s", p.suffix, what, reason)
	}
	return nil
}
