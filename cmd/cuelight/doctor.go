package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/usererr"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or wrong
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

const (
	fine    = "ok"
	warning = "warning"
	wrong   = "wrong"
)

// doctor runs the checks of `cuelight doctor`.
type doctor struct {
	c     *cli
	o     workOptions // those of programFlags
	found []finding
}

func (c *cli) doctorCommand() *cobra.Command {
	d := &doctor{c: c}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, and suggest fixes",
		Long: `Doctor checks what cuelight needs: PostgreSQL, ffmpeg with its encoders and filters,
the sandbox, directories and their free space, the database, its tables, its clock
and its notifications. It prints what is wrong and how to fix it, and changes nothing.
The exit code is 1 if a check fails; warnings do not count.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.PublishDir, "publish-dir", "", "directory for published videos (default DATA-DIR/published)")
	d.o.programFlags(f)
	setting(f, "publish-dir")
	c.jsonFlag(cmd)
	return cmd
}

func (d *doctor) ok(check, format string, args ...any) {
	d.found = append(d.found, finding{check, fine, fmt.Sprintf(format, args...), ""})
}

func (d *doctor) warn(check, detail, fix string) {
	d.found = append(d.found, finding{check, warning, detail, fix})
}

func (d *doctor) wrong(check, detail, fix string) {
	d.found = append(d.found, finding{check, wrong, detail, fix})
}

func (d *doctor) run(ctx context.Context) error {
	d.checkPrograms(ctx)
	d.checkDirectories()
	err := d.checkDatabase(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(d.write(), err)
}

func (d *doctor) write() error {
	bad := 0
	for _, f := range d.found {
		if f.Status == wrong {
			bad++
		}
		if d.c.json {
			if err := d.c.writeJSON(f); err != nil {
				return err
			}
			continue
		}
		colour := map[string]string{fine: console.Green, warning: console.Yellow, wrong: console.Red}[f.Status]
		status := d.c.out.Paint(colour, fmt.Sprintf("%-8s", f.Status))
		text := fmt.Sprintf("%s %-13s %s\n", status, f.Check, usererr.Printable(f.Detail))
		if f.Fix != "" {
			text += fmt.Sprintf("%22s -> %s\n", "", f.Fix)
		}
		if _, err := fmt.Fprint(d.c.out, text); err != nil {
			return err
		}
	}
	if bad > 0 {
		fmt.Fprintf(d.c.err, "cuelight: %s failed\n", console.Plural(bad, "check"))
		return exitStatus(exitFailure)
	}
	return nil
}
