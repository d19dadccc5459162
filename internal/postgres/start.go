package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/flock"
)

const (
	// databaseName is the database of Cuelight in its private server.
	databaseName = "cuelight"
	// port only names the socket; the server does not listen on a network.
	port = "5432"
	// obstacleTimeout is how long a start waits for the children of a killed
	// server, which notice its end within seconds.
	obstacleTimeout = 15 * time.Second
	// silenceTimeout is how long a server may run without any answer. The answer
	// "starting up" means recovery, whose duration has no limit.
	silenceTimeout = time.Minute
	// connectTimeout limits one try to connect.
	connectTimeout = 10 * time.Second
)

// DefaultFallbackDir is the parent directory of clusters whose own directory the
// server's user cannot reach.
const DefaultFallbackDir = "/var/lib/cuelight-pg"

// Options say which database to run. Only Dir is required.
type Options struct {
	// Dir is a directory for the database alone; Start creates it if necessary.
	// All processes with the same Dir share one server.
	Dir string

	// FallbackDir is the parent directory of the cluster if the server's user cannot
	// enter Dir. Default [DefaultFallbackDir].
	FallbackDir string
}

// Start returns when the database answers. It creates the cluster if there is none,
// adopts the server if it runs and starts it otherwise, and waits for recovery
// without a limit. ctx bounds the start only; when it is done, Start stops the server
// it has started.
//
// An error is an [*Error], a [*VersionError] or an error of the operating system. It
// matches [ErrNotInstalled], [ErrInUse], [ErrNotCluster] or [ErrAccount] where one
// of these applies.
func Start(ctx context.Context, o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := prepareDir(o); err != nil {
		return nil, err
	}
	startStop, err := openLock(filepath.Join(o.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock database: %w", err)
	}
	defer startStop.Close()
	if err := flock.Lock(ctx, startStop, flock.Exclusive); err != nil {
		return nil, err
	}
	users, err := openLock(filepath.Join(o.Dir, usersName))
	if err != nil {
		return nil, fmt.Errorf("lock database: %w", err)
	}
	s, err := startLocked(ctx, o, users)
	if err != nil {
		return nil, errors.Join(err, users.Close())
	}
	return s, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("start database: no directory given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("start database: %w", err)
	}
	o.Dir, o.FallbackDir = dir, cmp.Or(o.FallbackDir, DefaultFallbackDir)
	return o, nil
}

// prepareDir creates the directory. Other users may pass through a directory of root,
// because the server's user must reach the cluster in it; the cluster has mode 0700.
func prepareDir(o Options) error {
	var err error
	if os.Geteuid() == 0 {
		err = makePassable(o.Dir)
	} else {
		err = os.MkdirAll(o.Dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("create database directory: %w", err)
	}
	return checkForeign(o.Dir)
}

// startLocked is the part of Start that holds the lock.
func startLocked(ctx context.Context, o Options, users *os.File) (*Server, error) {
	c, err := locate(o)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{lockName, usersName} {
		if err := c.account.Own(filepath.Join(o.Dir, name)); err != nil {
			return nil, fmt.Errorf("lock database: %w", err)
		}
	}
	if err := c.create(ctx); err != nil {
		return nil, err
	}
	alone, err := flock.TryLock(users, flock.Exclusive)
	if err != nil {
		return nil, err
	}
	l := &launch{cluster: c, alone: alone}
	in, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	if err = ensureDatabase(ctx, in.url("postgres"), databaseName); err == nil {
		err = flock.Lock(ctx, users, flock.Shared)
	}
	if err != nil {
		if alone {
			in.process.stop()
		} else {
			in.process.release()
		}
		return nil, err
	}
	return newServer(o, c, in, users), nil
}

// instance is a running server and its address.
type instance struct {
	process   *process
	socketDir string
	port      string
	logOffset int64 // where its messages begin
}

func (in *instance) url(database string) string {
	return Address(in.socketDir, in.port, database)
}

// checkServer connects to a server and checks that its data directory is data.
func checkServer(ctx context.Context, socketDir, port, data string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, Address(socketDir, port, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var directory string
	if err := conn.QueryRow(ctx, "show data_directory").Scan(&directory); err != nil {
		return err
	}
	if !sameDir(directory, data) {
		return fmt.Errorf("the server at %s has the data directory %s", socketDir, directory)
	}
	return nil
}

// isStarting reports whether the server is starting, recovering or shutting down.
func isStarting(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "57P03"
}

// isRejected reports whether the server has rejected the connection for good.
func isRejected(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !isStarting(err)
}

func ensureDatabase(ctx context.Context, url, name string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	err = conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// quoteListItem makes an item of a setting that is a list of directories.
func quoteListItem(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
