package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/bench/subprocess"
	"github.com/cuelight/cuelight/internal/progresslog"
)

// run measures what the options say, and writes what it found. When ctx is done
// before that nothing is written: half a run is not a result.
func run(ctx context.Context, o options, out io.Writer) error {
	teller := progresslog.New(out)
	r := result.New(o.mode)
	if wd, err := os.Getwd(); err == nil {
		r.Commit = result.HeadCommit(ctx, wd)
	}
	r.Machine = result.DescribeMachine(ctx, o.dir, result.VersionCommands())
	teller.Logf("%s: %s, %d cores, %d MiB; %s below %s", o.mode, r.Machine.CPU, r.Machine.Cores, r.Machine.MemoryMiB, r.Machine.Filesystem, o.dir)
	if strings.HasPrefix(r.Machine.Filesystem, "tmpfs") {
		return fmt.Errorf("%s is in memory: say with -dir where there is a disk", o.dir)
	}
	if err := measure(ctx, o, r, teller); err != nil {
		return err
	}
	r.DurationSeconds = time.Since(teller.Started()).Seconds()
	return tell(o, r, teller)
}

// measure goes through the plan.
func measure(ctx context.Context, o options, r *result.Result, teller *progresslog.Log) (err error) {
	stand, err := scenario.StartServer(ctx, o.dir, r.Machine.MemoryMiB)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stand.Close()) }()
	r.Settings["postgres"] = stand.Settings
	daemon := program{path: o.cuelight, dir: o.dir}
	defer func() { err = errors.Join(err, daemon.remove()) }()
	meeting := scenario.Session{
		Server: stand, Result: r, Logf: teller.Logf, StartSubprocess: subprocess.Start, DaemonCommand: daemon.serve,
		ScratchDir: o.dir, MediaDir: o.media,
	}
	for _, g := range plan(o.mode) {
		if err := meeting.Run(ctx, heats(g, o)); err != nil {
			return err
		}
	}
	return nil
}

// heats are a group of the plan, as far as the options want it.
func heats(g group, o options) scenario.Group {
	all := scenario.Group{Rounds: g.rounds}
	if o.rounds > 0 {
		all.Rounds = o.rounds
	}
	here := contestants()
	for _, e := range g.entries {
		if e.contestants == nil {
			all.Runs = append(all.Runs, scenario.Run{Scenario: e.scenario})
		}
		for _, name := range e.contestants {
			all.Runs = append(all.Runs, scenario.Run{Scenario: e.scenario, System: find(here, name)})
		}
	}
	return all.Only(o.only, o.contestants)
}

// whole reports whether everything is measured, as it should be: what is linked
// as the latest report is not to be a part of one.
func (o options) whole() bool {
	return o.mode == modeFull && o.rounds == 0 && len(o.only) == 0 && len(o.contestants) == 0
}

// tell writes the result and the report, and prints the targets.
func tell(o options, r *result.Result, teller *progresslog.Log) error {
	if o.out != "" {
		path, err := r.Write(o.out)
		if err != nil {
			return err
		}
		teller.Logf("%s", path)
		if path, err = report.Write(r, report.Options{Dir: o.out, Latest: o.whole()}); err != nil {
			return err
		}
		teller.Logf("%s", path)
	}
	if report.HasTargets(r) {
		var text strings.Builder
		if err := report.PrintTargets(&text, r); err != nil {
			return err
		}
		teller.Printf("\n%s", text.String())
	}
	if o.mode == modeQuick {
		teller.Printf("%s\n", report.Summary(r))
	}
	return nil
}

// rewrite is for those who have a result, and want its report as this program
// would write it.
func rewrite(file string, out io.Writer) error {
	path, err := report.Rewrite(file)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, path)
	return err
}

// profiled does something, and writes a profile of it where a path is given.
func profiled(path string, do func() error) (err error) {
	if path == "" {
		return do()
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return do()
}
