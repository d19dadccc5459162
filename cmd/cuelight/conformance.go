package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/conformance"
	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/usererr"
)

const conformanceHelp = `Conformance checks a worker, in whatever language, against the protocol that
docs/workers.md describes. It starts a coordinator for this purpose on a loopback
address, with a temporary database, and CMD with sh, for each check. CMD works for the
coordinator:

  CUELIGHT_SERVER  its address, to which the worker adds /api/v1/worker
  CUELIGHT_KEY     the key

The pipeline is named conformance and has one stage, work. For a claim of it, the
worker reads the file input, takes the seconds in params.seconds, delivers a file
output with the same bytes, and completes with the result {"bytes": N}. It has one
slot and stays in the foreground.

It prints a line per check, with what was expected and what happened if it failed. All
checks take a minute. The exit code is 1 if a check fails.

Without a CHECK it does all of
  `

// conformanceResult is a result in JSON.
type conformanceResult struct {
	Check   string  `json:"check"`
	Status  string  `json:"status"` // ok or failed
	Detail  string  `json:"detail,omitempty"`
	Seconds float64 `json:"seconds"`
}

func (c *cli) conformanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conformance --worker CMD [CHECK...]",
		Short: "Check a worker of your own against the protocol",
		Long:  conformanceHelp + strings.Join(conformance.Names(), ", "),
		Args:  cobra.ArbitraryArgs,
	}
	worker := cmd.Flags().String("worker", "", "command that starts the worker")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, checks []string) error { return c.conformance(cmd.Context(), *worker, checks) }
	return cmd
}

func (c *cli) conformance(ctx context.Context, worker string, checks []string) error {
	if worker == "" {
		return usererr.Usagef("--worker is needed: the command that starts the worker")
	}
	for _, name := range checks {
		if !slices.Contains(conformance.Names(), name) {
			return usererr.Usagef("unknown check %s; allowed: %s", usererr.Printable(name), strings.Join(conformance.Names(), ", "))
		}
	}
	var printed error
	failed, err := conformance.Run(ctx, conformance.Options{
		Worker: worker, Checks: checks, Output: c.err, Report: func(r conformance.Result) {
			if err := c.printConformance(r); printed == nil {
				printed = err
			}
		},
	})
	if err == nil {
		err = printed
	}
	if err != nil {
		return err
	}
	if failed > 0 {
		fmt.Fprintf(c.err, "cuelight: %s failed\n", console.Plural(failed, "check"))
		return exitStatus(exitFailure)
	}
	return nil
}

func (c *cli) printConformance(r conformance.Result) error {
	out := conformanceResult{Check: r.Check, Status: "ok", Seconds: r.Took.Seconds()}
	word, colour := "ok", console.Green
	if r.Err != nil {
		out.Status, out.Detail, word, colour = "failed", r.Err.Error(), "FAILED", console.Red
	}
	line := c.out.Paint(colour, fmt.Sprintf("%-8s", word)) + r.Check
	if r.Err != nil {
		line += ": " + usererr.Printable(out.Detail)
	}
	return c.print(out, "%s", line)
}
