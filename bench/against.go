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

// program is a benchmark that was built with a revision of Cuelight.
type program struct {
	path, dir string // the working directory
	suffix    string // of the systems, in the result
}

// before ends the name of a system of the earlier revision.
const before = "_before"

// compare measures Cuelight and an earlier revision of it in turns, in rounds: each run is a process of
// its own, with a server of its own. Each round has all scenarios that measure Cuelight. The programs alternate in which one
// runs first.
func compare(ctx context.Context, o options, out io.Writer) (err error) {
	if o.dir, err = filepath.Abs(o.dir); err != nil { // the programs have other working directories
		return err
	}
	tree, err := os.MkdirTemp(o.dir, "cuelight-bench-against-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	programs, err := buildBoth(ctx, o.against, tree)
	if err != nil {
		return err
	}
	r, log := report.New(o.mode.String()), progresslog.New(out)
	for round := range max(o.rounds, 1) {
		for i, name := range o.scenarios() {
			for n := range programs {
				if err := programs[(n+round+i)%2].measure(ctx, o, name, tree, r, log); err != nil {
					return err
				}
			}
		}
	}
	log.Printf("\n")
	return report.PrintComparison(out, r, "cuelight"+before, o.against)
}

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

// buildBoth checks out a revision into a directory and builds this benchmark with it and with the sources here, so that
// both programs measure in the same way.
func buildBoth(ctx context.Context, revision, tree string) ([]program, error) {
	project := proofkit.ProjectDir()
	if project == "" {
		return nil, errors.New("-against needs the sources of Cuelight")
	}
	archive := filepath.Join(tree, "revision.tar")
	err := proofkit.Execute(ctx, "git", "-C", project, "archive", "--format=tar", "-o", archive, revision)
	if err == nil {
		err = proofkit.Execute(ctx, "tar", "-x", "-f", archive, "-C", tree)
	}
	if err != nil {
		return nil, fmt.Errorf("check out %s: %w", revision, err)
	}
	nowDir, beforeDir := filepath.Join(project, "bench"), filepath.Join(tree, "bench")
	if err := errors.Join(os.RemoveAll(beforeDir), os.CopyFS(beforeDir, os.DirFS(nowDir))); err != nil {
		return nil, fmt.Errorf("copy the benchmark: %w", err)
	}
	programs := []program{
		{filepath.Join(tree, "bench-before"), beforeDir, before}, {filepath.Join(tree, "bench-now"), nowDir, ""},
	}
	for i, modules := range []string{"-mod=mod", "-mod=readonly"} { // the revision may need other modules
		p := programs[i]
		err := proofkit.Execute(ctx, "env", "CGO_ENABLED=0", "GOWORK=off",
			"go", "build", "-C", p.dir, modules, "-trimpath", "-buildvcs=false", "-o", p.path, ".")
		if err != nil {
			return nil, fmt.Errorf("build the benchmark%s: %w", p.suffix, err)
		}
	}
	return programs, nil
}

// measure runs one scenario once, and adds its figures to a result.
func (p program) measure(
	ctx context.Context, o options, scenario, dir string, to *report.Result, log *progresslog.Log,
) error {
	out, err := os.MkdirTemp(dir, "result-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	args := []string{
		"-rounds", "1", "-only", scenario, "-systems", "cuelight", "-dir", o.dir, "-out", out, "-set", strings.Join(o.settings, ","),
	}
	if o.mode != full {
		args = append(args, "-"+o.mode.String())
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
		f.System += p.suffix
		for _, round := range f.Rounds {
			to.Add(f.Key, f.Unit, round)
		}
		log.Logf("%-48s %10.4g %s", f.Key, f.Median(), f.Unit)
	}
	for what, reason := range r.Skipped {
		log.Logf("skipped%s: %s: %s", p.suffix, what, reason)
	}
	return nil
}
