package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or upgrade the database's tables",
		Long: `Migrate creates the tables of the video pipeline and those of its operators (API keys,
webhooks, profiles), upgrades those of an earlier version, or adds stages that this program
has and the tables have not. It can run on several hosts at once.

Daemons of the version before work on during an upgrade and after it: first migrate, then
replace the program on one host after the other. A daemon of this version waits until the
tables are upgraded.

Before it adds stages, stop all workers. Finished tasks count an added stage as completed;
to run it for them, too: cuelight retry --all --status completed --from STAGE.

Migrate does not change tables that are newer than this program, or that have a stage
which this program lacks (exit code 13).

Every command upgrades the tables of a private database.

With --print it writes the SQL that creates the tables, to be loaded in another way.
With --check it changes nothing, says what it would do and which workers have another
version, and exits with 13 if there is something to do.`,
		Args: noArguments,
	}
	check := cmd.Flags().Bool("check", false, "check only")
	show := cmd.Flags().Bool("print", false, "write the SQL only")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *check && *show {
			return usererr.Usagef("--check cannot be combined with --print")
		}
		if *show {
			graph := store.Video()
			_, err := fmt.Fprintf(c.out, "%s\n%s\n%s", graph.SchemaSQL(), graph.TriggersSQL(), operators.SQL)
			return err
		}
		return c.migrate(cmd.Context(), *check)
	}
	return cmd
}

func (c *cli) migrate(ctx context.Context, check bool) error {
	if check {
		err := c.CheckCreated()
		if none, ok := errors.AsType[dbconn.NotCreatedError](err); ok {
			return &usererr.Error{Kind: usererr.Schema, Text: none.Message.Text, Hint: "create it: cuelight migrate"}
		} else if err != nil {
			return err
		}
	}
	return c.withConnection(ctx, func(db *dbconn.Database) error {
		done := "are up to date"
		if check {
			if err := c.checkTables(ctx, db); err != nil {
				return err
			}
		} else {
			r, err := db.Migrate(ctx)
			switch {
			case err != nil:
				return db.WithName(err)
			case r.From == 0:
				done = "were created"
			case r.From < store.SchemaVersion:
				done = "were upgraded from version " + strconv.Itoa(r.From)
			case len(r.Added) > 0:
				done = "now have the stages " + strings.Join(r.Added, ", ")
			case r.Repaired:
				done = "have all triggers and functions again"
			}
		}
		fmt.Fprintf(c.err, "cuelight: the tables in %s %s (version %d)\n", db.Name, done, store.SchemaVersion)
		return nil
	})
}

// checkTables says what migrate would do, and which workers have another version of the program.
func (c *cli) checkTables(ctx context.Context, db *dbconn.Database) error {
	err := db.CheckTables(ctx)
	if err != nil && !errors.Is(err, store.ErrSchemaOlder) {
		return db.WithName(err)
	}
	workers, workersErr := db.Store.Workers(ctx, false)
	if workersErr != nil {
		return db.WithName(workersErr)
	}
	for _, w := range workers {
		if w.Version != programVersion() {
			fmt.Fprintf(c.err, "cuelight: worker %s (process %d on host %s) has version %s, this program %s\n",
				usererr.Printable(w.Name), w.PID, usererr.Printable(w.Host), usererr.Printable(w.Version), programVersion())
		}
	}
	if err != nil {
		return dbconn.ExplainSchema(err)
	}
	return nil
}
