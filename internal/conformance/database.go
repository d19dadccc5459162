package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/postgres"
)

// server is a temporary PostgreSQL server. Each check has a database of its own there.
type server struct {
	*postgres.Server
	dir string
}

func startServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "cuelight-conformance-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	// For root another user runs the server, and must enter the directory.
	if err = os.Chmod(dir, 0o711); err == nil {
		s.Server, err = postgres.Start(ctx, postgres.Options{Dir: dir, FallbackDir: dir})
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// open creates a database and connects to it.
func (s *server) open(ctx context.Context, name string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.URL())
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	config.ConnConfig.Database = name
	return pgxpool.NewWithConfig(ctx, config)
}

// remove stops the server and removes its data.
func (s *server) remove() error { return errors.Join(s.Close(), os.RemoveAll(s.dir)) }
