package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// port only names the socket's file; nothing listens on a network.
	port = "5432"
	// obstacleWithin is how long a start waits for the remains of a server
	// that was killed: its children notice that within seconds.
	obstacleWithin = 15 * time.Second
	// silentWithin is how long a server may live without answering at all. One
	// that answers "starting up" is recovering, which takes as long as it takes.
	silentWithin = time.Minute
	// askWithin bounds one try to connect.
	askWithin = 10 * time.Second
)

// DefaultElsewhere is where clusters go that the server could not reach.
const DefaultElsewhere = "/var/lib/cuelight-pg"

// Options say which database and how. Only Dir must be set.
type Options struct {
	// Dir is the directory that the database has for itself; it is made if it
	// does not exist. All processes that name the same Dir share one server.
	Dir string

	// BinDir holds the server's programs. Default: what [Find] prefers, or for
	// an existing cluster the first that is of its version.
	BinDir string

	// Database is the database to connect to, made if it does not exist.
	// Default "cuelight".
	Database string

	// User is the system user that runs a new server when the process is root,
	// and is ignored when it is not. Default "postgres".
	User string

	// Elsewhere is where the cluster goes if User cannot enter Dir. Default
	// [DefaultElsewhere].
	Elsewhere string

	// Settings are server settings by name. They count only for the process
	// that starts the server, and there more than its configuration files.
	Settings map[string]string
}

// Start returns when the database answers: it makes the cluster if there is
// none, adopts the server if it runs, starts it if it does not, and waits for
// recovery as long as that takes. Cancelling ctx gives up, and stops what was
// started. Afterwards ctx has no meaning for the server; call Close.
//
// An error is an [*Error], a [*VersionError] or one of the operating system's,
// and matches [ErrNotInstalled], [ErrInUse], [ErrNotCluster] or [ErrAccount]
// where it is about that.
func Start(ctx context.Context, o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := prepare(o); err != nil {
		return nil, err
	}
	turn, err := openLock(filepath.Join(o.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock database: %w", err)
	}
	defer turn.Close()
	if err := lock(ctx, turn, lockExclusive); err != nil {
		return nil, err
	}
	users, err := openLock(filepath.Join(o.Dir, usersName))
	if err != nil {
		return nil, fmt.Errorf("lock database: %w", err)
	}
	s, err := start(ctx, o, users)
	if err != nil {
		return nil, errors.Join(err, users.Close())
	}
	return s, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("start database: no directory named")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("start database: %w", err)
	}
	o.Dir = dir
	if o.Database == "" {
		o.Database = "cuelight"
	}
	if o.Elsewhere == "" {
		o.Elsewhere = DefaultElsewhere
	}
	return o, nil
}

// prepare makes the directory. Root's is passable, because the server's user
// must get to the cluster in it, which is itself closed.
func prepare(o Options) error {
	var err error
	if os.Geteuid() == 0 {
		err = makePassable(o.Dir)
	} else {
		err = os.MkdirAll(o.Dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("make database directory: %w", err)
	}
	return checkForeign(o.Dir)
}

// start is Start while it is this process's turn.
func start(ctx context.Context, o Options, users *os.File) (*Server, error) {
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
	alone, err := tryLock(users, lockExclusive)
	if err != nil {
		return nil, err
	}
	l := &launch{cluster: c, settings: o.Settings, alone: alone}
	in, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	if err = makeDatabase(ctx, in.url("postgres"), o.Database); err == nil {
		err = lock(ctx, users, lockShared)
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

// instance is a running server and the way to it.
type instance struct {
	process   *process
	socketDir string
	port      string
	logFrom   int64
}

func (in *instance) url(database string) string {
	return Address(in.socketDir, in.port, database)
}

// Address is the URL of a database on a Unix socket, for [Superuser], as both
// pgx and psql read it.
func Address(socketDir, port, database string) string {
	query := url.Values{"host": {socketDir}, "port": {port}, "sslmode": {"disable"}}.Encode()
	// A plus sign is a space in a form but not in an address of a database.
	return "postgres://" + Superuser + "@/" + url.PathEscape(database) + "?" + strings.ReplaceAll(query, "+", "%20")
}

// ask connects to a server and asks whether it is the one for data.
func ask(ctx context.Context, socketDir, port, data string) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, Address(socketDir, port, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var theirs string
	if err := conn.QueryRow(ctx, "show data_directory").Scan(&theirs); err != nil {
		return err
	}
	if !sameDir(theirs, data) {
		return fmt.Errorf("the server at %s works in %s", socketDir, theirs)
	}
	return nil
}

// notYet: the server is there but starting up, recovering or shutting down.
func notYet(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "57P03"
}

// refused: the server is there and does not want us.
func refused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !notYet(err)
}

func makeDatabase(ctx context.Context, url, name string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	defer conn.Close(ctx)
	var there bool
	err = conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&there)
	if err == nil && !there {
		_, err = conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	return nil
}

// quoteList makes one element of a setting that is a list of directories.
func quoteList(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
