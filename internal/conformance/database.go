package conformance

import (
	"context"
	"errors"
	"os"

	"github.com/cuelight/cuelight/internal/postgres"
)

// startDatabase starts a PostgreSQL server, until it is removed with its data.
func startDatabase(ctx context.Context) (db *postgres.Server, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "cuelight-conformance-")
	if err != nil {
		return nil, nil, err
	}
	// For root another user runs the server, and must enter the directory.
	if err = os.Chmod(dir, 0o711); err == nil {
		db, err = postgres.Start(ctx, postgres.Options{Dir: dir, FallbackDir: dir})
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return db, func() error { return errors.Join(db.Close(), os.RemoveAll(dir)) }, nil
}
