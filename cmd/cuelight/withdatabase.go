package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
)

// withConnection calls do with the database, whatever the state of its tables.
func (c *cli) withConnection(ctx context.Context, do func(db *dbconn.Database) error) error {
	if err := c.checkNewDatabase(ctx); err != nil {
		return err
	}
	db, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

// checkNewDatabase returns an error if Connect would create a private database although the data directory or
// bucket has the files of another database's tasks: one that was not named, or is in another --local-dir.
func (c *cli) checkNewDatabase(ctx context.Context) error {
	if _, isNew := errors.AsType[dbconn.NotCreatedError](c.CheckCreated()); !isNew {
		return nil
	}
	address, _ := c.Buckets()
	data, err := c.openLocation(address, c.DataPath)
	if err != nil {
		return err
	}
	return daemon.CheckNewDatabase(ctx, data)
}

// withDatabase calls do with the database, which it creates if need be.
func (c *cli) withDatabase(ctx context.Context, do func(db *dbconn.Database) error) error {
	return c.withConnection(ctx, func(db *dbconn.Database) error {
		if err := db.EnsureTables(ctx); err != nil {
			return db.WithName(err)
		}
		return do(db)
	})
}

// withExistingDatabase is withDatabase for commands about existing tasks: it creates no database.
func (c *cli) withExistingDatabase(ctx context.Context, do func(db *dbconn.Database) error) error {
	if err := c.CheckCreated(); err != nil {
		return err
	}
	return c.withDatabase(ctx, do)
}

// ignoreNotCreated prints that the database does not exist yet, instead of an error: there are
// no tasks to list.
func (c *cli) ignoreNotCreated(err error) error {
	if none, ok := errors.AsType[dbconn.NotCreatedError](err); ok && !none.IsNamedDirMissing {
		fmt.Fprintf(c.err, "cuelight: %s\n", none.Message.Text)
		return nil
	}
	return err
}

// withDaemonDatabase is withDatabase for commands that configure daemons. A database that such
// a command created would not be the one that the daemons use.
func (c *cli) withDaemonDatabase(ctx context.Context, do func(db *dbconn.Database) error) error {
	err := c.withExistingDatabase(ctx, do)
	none, ok := errors.AsType[dbconn.NotCreatedError](err)
	if !ok {
		return err
	}
	return &usererr.Error{
		Kind: usererr.NotFound, Text: none.Message.Text,
		Hint: "--data-dir selects the daemon's directory; " +
			"cuelight migrate creates a database before the daemon's first start",
	}
}
