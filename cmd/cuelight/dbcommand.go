package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/usererr"
)

// psqlName is the command that hands its arguments on, and the program that gets
// them.
const psqlName = "psql"

func (c *cli) databaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "db",
		Short: "Reach the database by other means",
	}
	c.onlySubcommands(cmd)
	cmd.AddCommand(
		&cobra.Command{
			Use:   "url",
			Short: "Print the address of the database in use",
			Long: `Url prints the address of the database in use, with its password if it has one.

A private server runs only while some cuelight command uses it: a daemon, or
"cuelight db psql".`,
			Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error { return c.databaseAddress(cmd.Context()) },
		},
		&cobra.Command{
			Use:   psqlName + " [-- ARGUMENT...]",
			Short: "Run psql on the database in use",
			Long: `Psql runs PostgreSQL's own client on the database in use, with the arguments
after "--". A private server keeps running meanwhile.`,
			RunE: func(cmd *cobra.Command, args []string) error { return c.psql(cmd.Context(), args) },
		},
	)
	return cmd
}

func (c *cli) databaseAddress(ctx context.Context) (err error) {
	db, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	address := db.ConnString()
	if address == "" {
		address = db.Name // what PG* say, but for the password
	}
	if db.PrivateServer() != nil && !db.PrivateServer().Adopted() {
		fmt.Fprintln(c.err, "cuelight: nobody else uses this server now, so it stops again: see cuelight db psql")
	}
	_, err = fmt.Fprintln(c.out, address)
	return err
}

// psql runs in the foreground: the terminal's signals are its own, and what it
// does with them is its decision.
func (c *cli) psql(ctx context.Context, args []string) (err error) {
	db, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	program := psqlName
	if db.PrivateServer() != nil {
		program = db.PrivateServer().Binaries().Path(program)
	}
	if program, err = exec.LookPath(program); err != nil {
		return &usererr.Error{Kind: usererr.Usage, Text: "psql is not installed", Hint: installLine("postgresql-client")}
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
	return c.accompany(ctx, cmd)
}

// accompany waits for a program, and passes on what only we were sent.
func (c *cli) accompany(ctx context.Context, cmd *exec.Cmd) error {
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
			if s, ok := daemon.Received(ctx); ok && s.Signal != syscall.SIGINT {
				_ = cmd.Process.Signal(os.Signal(s.Signal)) // it may have ended just now
			}
		}
	}
}
