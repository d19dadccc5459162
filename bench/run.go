package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/internal/progresslog"
)

// run measures and writes the result. If ctx is done first, it writes nothing: a part of a run
// is not a result.
func run(ctx context.Context, o options, out io.Writer) error {
	log := progresslog.New(out)
	r := report.New(o.mode.String())
	if wd, err := os.Getwd(); err == nil {
		r.Commit = report.HeadCommit(ctx, wd)
	}
	r.Machine = report.DescribeMachine(ctx, o.dir)
	log.Logf("%s: %s, %s cores, %s; %s below %s",
		o.mode, r.Machine["processor"], r.Machine["cores"], r.Machine["memory"], r.Machine["database on"], o.dir)
	if strings.HasPrefix(r.Machine["database on"], "tmpfs") {
		return fmt.Errorf("%s is in memory; select a directory on a disk with -dir", o.dir)
	}
	if err := measure(ctx, o, r, log); err != nil {
		return err
	}
	r.DurationSeconds = time.Since(log.Started()).Seconds()
	return writeResult(o, r, log)
}

// measure runs the groups of the plan.
func measure(ctx context.Context, o options, r *report.Result, log *progresslog.Log) (err error) {
	var memoryMiB int
	_, _ = fmt.Sscan(r.Machine["memory"], &memoryMiB) // 0 if it is unknown
	server, err := scenario.StartServer(ctx, o.dir, memoryMiB, o.settings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	r.Settings["postgres"] = server.Settings
	session := scenario.Session{Server: server, Result: r, Logf: log.Logf, Slots: slots, Dir: o.dir}
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

// writeResult writes the result and the report, and prints the targets. Only the report of everything is the latest.
func writeResult(o options, r *report.Result, log *progresslog.Log) error {
	isWhole := len(o.only)+len(o.systems) == 0
	if o.out != "" {
		paths, err := report.Write(r, o.out, isWhole && o.mode == full && o.rounds == 0)
		if err != nil {
			return err
		}
		log.Logf("%s", strings.Join(paths, ", "))
	}
	var text strings.Builder
	if err := report.PrintTargets(&text, r, isWhole && o.mode != held); err != nil {
		return err
	}
	log.Printf("\n%s", text.String())
	if o.mode == quick {
		log.Printf("%s\n", report.Summary(r))
	}
	return nil
}
