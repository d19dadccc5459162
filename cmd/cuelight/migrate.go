package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make the database's tables, or bring them up to date",
		Long: `Migrate makes the tables of the video pipeline, or brings older ones up to date,
in one transaction. It is safe to run at any time and from several hosts at
once. Tables that are newer than this program are left alone (exit code 13).

Those of a private database are brought up to date by every command.

With --print it writes the SQL that makes the tables, for those who would rather
load it themselves; with --check it only looks, and exits with 13 when there is
something to do.`,
		Args: noArguments,
	}
	check := cmd.Flags().Bool("check", false, "only look")
	show := cmd.Flags().Bool("print", false, "write the SQL instead")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *check && *show {
			return usererr.Usagef("either --check or --print, not both")
		}
		if *show {
			graph := store.Video()
			_, err := fmt.Fprintf(c.out, "%s\n%s", graph.SchemaSQL(), graph.TriggersSQL())
			return err
		}
		return c.migrate(cmd.Context(), *check)
	}
	return cmd
}

func (c *cli) migrate(ctx context.Context, check bool) (err error) {
	if check {
		err := c.CheckCreated()
		if none, ok := errors.AsType[dbconn.NotCreatedError](err); ok {
			return &usererr.Error{Kind: usererr.Schema, Text: none.Message.Text, Hint: "create it: cuelight migrate"}
		} else if err != nil {
			return err
		}
	}
	db, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if check {
		if err := db.Store.Check(ctx); err != nil {
			return db.Describe(err)
		}
		fmt.Fprintf(c.err, "cuelight: the tables in %s are up to date (version %d)\n", db.Name, store.SchemaVersion)
		return nil
	}
	from, err := db.Store.Migrate(ctx)
	if err != nil {
		return db.Describe(err)
	}
	switch from {
	case store.SchemaVersion:
		fmt.Fprintf(c.err, "cuelight: the tables in %s are up to date (version %d)\n", db.Name, from)
	case 0:
		fmt.Fprintf(c.err, "cuelight: made the tables in %s (version %d)\n", db.Name, store.SchemaVersion)
	default:
		fmt.Fprintf(c.err, "cuelight: brought the tables in %s from version %d to %d\n", db.Name, from, store.SchemaVersion)
	}
	return nil
}
