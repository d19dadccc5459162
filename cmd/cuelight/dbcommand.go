package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
)

// psqlName is the name of the command and of the program that it runs.
const psqlName = "psql"

func (c *cli) databaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "db",
		Short: "Access the database directly",
	}
	c.onlySubcommands(cmd)
	cmd.AddCommand(
		&cobra.Command{
			Use:   "url",
			Short: "Print the address of the database",
			Long: `Url prints the address of the database, including its password.

A private server runs only while a cuelight command uses it: a daemon, or "cuelight
db psql".`,
			Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error { return c.databaseAddress(cmd.Context()) },
		},
		&cobra.Command{
			Use:   psqlName + " [-- ARGUMENT...]",
			Short: "Run psql on the database",
			Long: `Psql runs PostgreSQL's command line client on the database, with the arguments after
"--". A private server runs until it exits.`,
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.withConnection(cmd.Context(), func(db *dbconn.Database) error { return c.psql(cmd.Context(), db, args) })
			},
		},
	)
	return cmd
}

func (c *cli) databaseAddress(ctx context.Context) error {
	return c.withConnection(ctx, func(db *dbconn.Database) error {
		if db.PrivateServer() != nil && !db.PrivateServer().Adopted() {
			fmt.Fprintln(c.err, "cuelight: no other command uses this server, so it stops now; cuelight db psql keeps it running")
		}
		// Of the PG* variables, the name has what they say, without the password.
		_, err := fmt.Fprintln(c.out, cmp.Or(db.ConnString(), db.Name))
		return err
	})
}

// psql runs psql in the foreground, where it receives the terminal's signals itself.
func (c *cli) psql(ctx context.Context, db *dbconn.Database, args []string) (err error) {
	program := psqlName
	if db.PrivateServer() != nil {
		program = db.PrivateServer().Binaries().Path(program)
	}
	if program, err = exec.LookPath(program); err != nil {
		return &usererr.Error{Kind: usererr.Usage, Text: "psql is not installed", Hint: installHint("postgresql-client")}
	}
	if address := db.ConnString(); address != "" {
		args = append([]string{"--dbname=" + address}, args...)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.in, c.out.Writer, c.err.Writer
	cmd.Env = c.Env
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start psql: %w", err)
	}
	return c.waitForCommand(ctx, cmd)
}

// waitForCommand waits for a program, and forwards signals that the terminal does not send
// to it.
func (c *cli) waitForCommand(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := ctx.Done()
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return exitStatus(max(exit.ExitCode(), exitFailure))
			}
			return err
		case <-stop:
			stop = nil
			if s, ok := daemon.SignalOf(ctx); ok && s.Signal != syscall.SIGINT {
				_ = cmd.Process.Signal(os.Signal(s.Signal)) // it may have ended just now
			}
		}
	}
}
