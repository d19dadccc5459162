package dbconn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/usererr"
)

// NotCreatedError says that the private database does not exist yet. Commands that only
// read do not create one.
type NotCreatedError struct {
	Message           *usererr.Error
	IsNamedDirMissing bool // the data directory was set explicitly and does not exist
}

func (e NotCreatedError) Error() string { return e.Message.Text }
func (e NotCreatedError) Unwrap() error { return e.Message }

// CheckCreated returns a NotCreatedError if Connect would have to create the private
// database.
func (o *Options) CheckCreated() error {
	if !o.Target().Private {
		return nil
	}
	data, err := o.DataPath()
	if err != nil || PrivateExists(filepath.Join(data, PrivateDir)) {
		return err
	}
	e := NotCreatedError{Message: &usererr.Error{
		Kind: usererr.NotFound,
		Text: "there is no database yet in " + usererr.Printable(data),
		Hint: "cuelight run FILE or cuelight submit FILE creates it; --data-dir selects another directory",
	}}
	if _, err := os.Stat(data); o.DataDir != "" && errors.Is(err, fs.ErrNotExist) {
		e.IsNamedDirMissing = true
		e.Message.Text += ", which does not exist"
		e.Message.Hint = "the directory is set by --data-dir or CUELIGHT_DATA_DIR"
	}
	return e
}

// PrivateExists reports whether dir has a private database: its files, or a file that
// says where they are. A start that failed leaves neither.
func PrivateExists(dir string) bool {
	for _, name := range []string{"data", "moved-to"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// startPrivate starts the private server, and tells the operator where a new one keeps
// its data.
func (o *Options) startPrivate(ctx context.Context, db *Database) error {
	data, err := o.DataPath()
	if err != nil {
		return err
	}
	if err := MakeWritable("data", data); err != nil {
		return err
	}
	dir := filepath.Join(data, PrivateDir)
	db.privateOptions = postgres.Options{Dir: dir}
	create := !PrivateExists(dir)
	if create {
		if _, err := postgres.Find(); err == nil {
			fmt.Fprintf(o.Notices, "cuelight: creating a private database in %s\n", usererr.Printable(dir))
		}
	}
	if db.server, err = postgres.Start(ctx, db.privateOptions); err != nil {
		return err
	}
	if home := db.server.Dir(); create && home != dir {
		fmt.Fprintf(o.Notices, "cuelight: its files are in %s, because its server may not enter that directory\n",
			usererr.Printable(home))
	}
	return nil
}

// PrivateServer returns the private server; nil for any other database.
func (db *Database) PrivateServer() *postgres.Server {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.server
}

// ConnString returns the database's address as psql takes it; "" leaves it to the PG*
// variables.
func (db *Database) ConnString() string {
	if server := db.PrivateServer(); server != nil {
		return server.URL()
	}
	return db.Target.Address
}

// SuperviseServer restarts the private server whenever it ends, until ctx is done. It calls
// report with the reason, and with nil once the server runs again.
func (db *Database) SuperviseServer(ctx context.Context, report func(error)) {
	for server := db.PrivateServer(); server != nil; server = db.PrivateServer() {
		select {
		case <-ctx.Done():
			return
		case <-server.Done():
		}
		report(server.Err())
		if !db.restart(ctx, report) {
			return
		}
		report(nil)
	}
}

func (db *Database) restart(ctx context.Context, report func(error)) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	for delay := time.Second; ; delay = min(2*delay, time.Minute) {
		_ = db.server.Close() // its end has been reported
		next, err := postgres.Start(ctx, db.privateOptions)
		if err == nil {
			db.server = next
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		report(err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(delay):
		}
	}
}
