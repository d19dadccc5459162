package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
)

// doctor runs the checks of `cuelight doctor`.
type doctor struct {
	c      *cli
	o      workOptions // those of machineFlags
	db     *dbconn.Database
	server *dbconn.ServerInfo // nil unless checkDatabase has reached it
}

type check struct {
	name string
	when func() bool // nil for always
	run  func(ctx context.Context) []finding
}

func (d *doctor) checks() []check {
	isPrivate := func() bool { return d.c.Target().Private }
	hasFFmpeg := func() bool { _, err := exec.LookPath(d.o.ffmpeg); return err == nil }
	hasServer := func() bool { return d.server != nil }
	program := func(name string) check {
		return check{filepath.Base(name), nil, func(ctx context.Context) []finding { return checkProgram(ctx, name) }}
	}
	return []check{
		{"postgresql", isPrivate, checkPostgreSQL},
		program(d.o.ffmpeg),
		program(d.o.ffprobe),
		{"encoders", hasFFmpeg, d.checkEncoders},
		{"filters", hasFFmpeg, d.checkFilters},
		{"sandbox", hasFFmpeg, d.checkSandbox},
		{"encoders", hasFFmpeg, d.tryEncoders},
		{"data", nil, d.checkDataDir},
		{"published", nil, d.checkPublishDir},
		{"database", nil, d.checkDatabase},
		{"clock", hasServer, d.checkClock},
		{"tables", hasServer, d.checkTables},
		{"locations", hasServer, d.checkLocations},
		{"notifications", hasServer, d.checkNotifications},
		{"workers", hasServer, d.checkWorkers},
		{"standby", func() bool { return hasServer() && d.c.ReadURL != "" }, d.checkStandby},
	}
}

func (c *cli) doctorCommand() *cobra.Command {
	d := &doctor{c: c}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, and suggest fixes",
		Long: `Doctor checks what cuelight needs: PostgreSQL, ffmpeg with its encoders and filters,
the sandbox, hardware encoders whose device is there, directories and their free space,
the database, its tables, its clock and its notifications. If --data-dir or
--publish-dir is s3://BUCKET/PREFIX, it checks the bucket with files of its own, which
it deletes. It prints what is wrong and how to fix it, and changes nothing else.
The exit code is 1 if a check fails; warnings do not count.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	c.readURLFlag(cmd.Flags())
	c.machineFlags(cmd.Flags(), &d.o)
	c.jsonFlag(cmd)
	return cmd
}

func (d *doctor) run(ctx context.Context) (err error) {
	defer func() {
		if d.db != nil {
			err = errors.Join(err, d.db.Close())
		}
	}()
	bad := 0
	for _, check := range d.checks() {
		if check.when != nil && !check.when() {
			continue
		}
		for _, f := range check.run(ctx) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.Check = check.name
			if f.Status == "failed" {
				bad++
			}
			if err := d.print(f); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		fmt.Fprintf(d.c.err, "cuelight: %s failed\n", console.Plural(bad, "check"))
		return exitStatus(exitFailure)
	}
	return nil
}

func (d *doctor) print(f finding) error {
	colour := map[string]string{"ok": console.Green, "warning": console.Yellow, "failed": console.Red}[f.Status]
	fix := ""
	if f.Fix != "" {
		fix = fmt.Sprintf("\n%22s -> %s", "", strings.ReplaceAll(f.Fix, "\n", fmt.Sprintf("\n%26s", "")))
	}
	return d.c.print(f, "%s %-13s %s%s",
		d.c.out.Paint(colour, fmt.Sprintf("%-8s", f.Status)), f.Check, usererr.Printable(f.Detail), fix)
}
