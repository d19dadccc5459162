package pgtest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/peterldowns/pgtestdb"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/postgres"
)

// URLEnv is the environment variable that names a server to use instead of
// starting one.
const URLEnv = "CUELIGHT_TEST_DATABASE_URL"

// shared is the process's throw-away server. It belongs to the process rather
// than to a test because starting one per test would cost a second each.
var shared = sync.OnceValues(func() (*pgserver.Server, error) {
	return pgserver.Start(context.Background(), pgserver.Options{})
})

// New creates a database that holds s and returns a pool of connections to it.
// Pool and database are gone when the test is over.
//
// pool.Config().ConnString() opens further connections, from this process or
// another, by pgx or by psql.
func New(t testing.TB, s Schema) *pgxpool.Pool {
	t.Helper()
	conf := config(t)
	// Children that a test killed may leave sessions which have not noticed yet.
	conf.ForceTerminateConnections = true
	made := pgtestdb.Custom(t, conf, s)
	// Registered after pgtestdb's own clean-up, so it runs before it.
	return open(t, made.URL())
}

func config(t testing.TB) pgtestdb.Config {
	t.Helper()
	given := os.Getenv(URLEnv)
	if given == "" {
		s, err := shared()
		if err != nil {
			unavailable(t, err)
		}
		given = s.URL("postgres")
	}
	conf, err := parse(given)
	if err != nil {
		t.Fatalf("read $%s: %v", URLEnv, err)
	}
	return conf
}

// unavailable ends a test that has no server to run on.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skipf("this test needs a PostgreSQL server: %v", err)
	}
	t.Fatalf("start a PostgreSQL server for tests: %v", err)
}

// parse splits a connection string into what pgtestdb puts together again.
func parse(given string) (pgtestdb.Config, error) {
	c, err := pgx.ParseConfig(given)
	if err != nil {
		return pgtestdb.Config{}, err
	}
	options := url.Values{}
	if u, err := url.Parse(given); err == nil && u.Scheme != "" {
		options = u.Query()
	}
	// These are said elsewhere in the address, or differ from database to database.
	for _, k := range []string{"host", "port", "user", "password", "dbname", "database"} {
		options.Del(k)
	}
	conf := pgtestdb.Config{
		DriverName: "pgx",
		User:       escape(c.User),
		Password:   escape(c.Password),
		Database:   c.Database,
		Port:       strconv.Itoa(int(c.Port)),
	}
	if filepath.IsAbs(c.Host) {
		options.Set("host", c.Host)
	} else if conf.Host = c.Host; net.ParseIP(c.Host).To4() == nil && net.ParseIP(c.Host) != nil {
		conf.Host = "[" + c.Host + "]"
	}
	conf.Options = plain(options.Encode())
	return conf, nil
}

// escape makes s fit for any part of an address.
func escape(s string) string { return plain(url.QueryEscape(s)) }

// plain undoes what holds for forms only: there a plus sign is a space.
func plain(encoded string) string { return strings.ReplaceAll(encoded, "+", "%20") }

// closeWithin is how long a pool may take to close. It waits for connections
// that were never given back, which without a bound is for ever.
const closeWithin = 20 * time.Second

func open(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), address)
	if err != nil {
		t.Fatalf("open pool: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() { pool.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(closeWithin):
			t.Errorf("%d connections were acquired from the pool and not released", pool.Stat().AcquiredConns())
		}
	})
	return pool
}
