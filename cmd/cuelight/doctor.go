package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/usererr"
)

// finding is one thing that doctor looked at.
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

// doctor is what `cuelight doctor` looks at and what it has found.
type doctor struct {
	c     *cli
	o     workOptions // those of programFlags
	found []finding
}

func (c *cli) doctorCommand() *cobra.Command {
	d := &doctor{c: c}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is missing or wrong on this machine, and the fix",
		Long: `Doctor looks at all that cuelight needs: PostgreSQL, ffmpeg with its encoders and
filters, how far this host can confine them, directories and their free space,
the database, its tables, its clock, and whether its notifications arrive. It says what is wrong and what to do about
it, and changes nothing. The exit code is 1 if something is wrong; warnings do
not count.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.PublishDir, "publish-dir", "", "where published videos go (default DATA-DIR/published)")
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
	d.checkPlaces()
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
		text := fmt.Sprintf("%s %-13s %s\n", d.c.out.Paint(colour, fmt.Sprintf("%-8s", f.Status)), f.Check, usererr.Printable(f.Detail))
		if f.Fix != "" {
			text += fmt.Sprintf("%22s -> %s\n", "", f.Fix)
		}
		if _, err := fmt.Fprint(d.c.out, text); err != nil {
			return err
		}
	}
	if bad > 0 {
		fmt.Fprintf(d.c.err, "cuelight: %s wrong\n", console.Plural(bad, "thing"))
		return exitStatus(exitFailure)
	}
	return nil
}
