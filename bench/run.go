package main

import (
	"cmp"
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

// run measures and writes the result. If ctx is done first, it writes nothing: a part of a run
// is not a result.
func run(ctx context.Context, o options, out io.Writer) error {
	log := progresslog.New(out)
	r := result.New(o.mode)
	if wd, err := os.Getwd(); err == nil {
		r.Commit = result.HeadCommit(ctx, wd)
	}
	r.Machine = result.DescribeMachine(ctx, o.dir, result.VersionCommands())
	log.Logf("%s: %s, %d cores, %d MiB; %s below %s",
		o.mode, r.Machine.CPU, r.Machine.Cores, r.Machine.MemoryMiB, r.Machine.Filesystem, o.dir)
	if strings.HasPrefix(r.Machine.Filesystem, "tmpfs") {
		return fmt.Errorf("%s is in memory; select a directory on a disk with -dir", o.dir)
	}
	if err := measure(ctx, o, r, log); err != nil {
		return err
	}
	r.DurationSeconds = time.Since(log.Started()).Seconds()
	return writeResult(o, r, log)
}

// measure runs the groups of the plan.
func measure(ctx context.Context, o options, r *result.Result, log *progresslog.Log) (err error) {
	server, err := scenario.StartServer(ctx, o.dir, r.Machine.MemoryMiB, o.settings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	r.Settings["postgres"] = server.Settings
	daemon := daemonProgram{path: o.cuelight, dir: o.dir}
	defer func() { err = errors.Join(err, daemon.remove()) }()
	session := scenario.Session{
		Server: server, Result: r, Logf: log.Logf, StartSubprocess: subprocess.Start, DaemonCommand: daemon.command,
		ScratchDir: o.dir, MediaDir: o.media, Slots: slots,
	}
	for _, g := range plan(o.mode) {
		if err := session.Run(ctx, o.selectFrom(g)); err != nil {
			return err
		}
	}
	return nil
}

// selectFrom returns what the options select of a group.
func (o options) selectFrom(g scenario.Group) scenario.Group {
	g.Rounds = cmp.Or(o.rounds, g.Rounds)
	return g.Select(o.only, o.systems)
}

// writeResult writes the result and the report, and prints the targets.
func writeResult(o options, r *result.Result, log *progresslog.Log) error {
	if o.out != "" {
		path, err := r.Write(o.out)
		if err != nil {
			return err
		}
		log.Logf("%s", path)
		if path, err = report.Write(r, report.Options{Dir: o.out, Latest: o.isComplete()}); err != nil {
			return err
		}
		log.Logf("%s", path)
	}
	if report.HasTargets(r) {
		var text strings.Builder
		if err := report.PrintTargets(&text, r, len(o.only)+len(o.systems) == 0 && o.mode != modeHeld); err != nil {
			return err
		}
		log.Printf("\n%s", text.String())
	}
	if o.mode == modeQuick {
		log.Printf("%s\n", report.Summary(r))
	}
	return nil
}

// rewriteReport writes the report of a result again.
func rewriteReport(file string, out io.Writer) error {
	path, err := report.Rewrite(file)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, path)
	return err
}

// withCPUProfile calls a function and writes a profile of it if path is not empty.
func withCPUProfile(path string, do func() error) (err error) {
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
