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

	"github.com/cuelight/cuelight/internal/postgres"
)

// URLEnv is the environment variable with the address of a server to use instead of
// an ephemeral one.
const URLEnv = "CUELIGHT_TEST_DATABASE_URL"

// shared is the server of all tests of this process: a server per test would cost a
// second each.
var shared = sync.OnceValues(func() (*Ephemeral, error) {
	return StartEphemeral(context.Background(), EphemeralOptions{})
})

// New creates a database with the schema and returns a pool of connections to it. At
// the end of the test it closes the pool and drops the database.
//
// pool.Config().ConnString() is the address for further connections, from this process
// or another, by pgx or psql.
func New(t testing.TB, s Schema) *pgxpool.Pool {
	t.Helper()
	conf := config(t)
	// The sessions of processes that the test has killed may still exist.
	conf.ForceTerminateConnections = true
	database := pgtestdb.Custom(t, conf, s)
	// This cleanup is registered after that of pgtestdb, so it runs earlier.
	return open(t, database.URL())
}

func config(t testing.TB) pgtestdb.Config {
	t.Helper()
	address := os.Getenv(URLEnv)
	if address == "" {
		s, err := shared()
		if err != nil {
			skipOrFail(t, err)
		}
		address = s.URL("postgres")
	}
	conf, err := parse(address)
	if err != nil {
		t.Fatalf("read $%s: %v", URLEnv, err)
	}
	return conf
}

// skipOrFail skips or fails a test that has no server.
func skipOrFail(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skipf("this test needs a PostgreSQL server: %v", err)
	}
	t.Fatalf("start a PostgreSQL server for tests: %v", err)
}

// parse splits an address into the parts from which pgtestdb makes addresses.
func parse(address string) (pgtestdb.Config, error) {
	c, err := pgx.ParseConfig(address)
	if err != nil {
		return pgtestdb.Config{}, err
	}
	options := url.Values{}
	if u, err := url.Parse(address); err == nil && u.Scheme != "" {
		options = u.Query()
	}
	// These have other fields in the configuration, or differ between databases.
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
	conf.Options = replacePlus(options.Encode())
	return conf, nil
}

// escape makes s valid in any part of an address.
func escape(s string) string { return replacePlus(url.QueryEscape(s)) }

// replacePlus replaces the plus signs, which mean a space in forms only.
func replacePlus(encoded string) string { return strings.ReplaceAll(encoded, "+", "%20") }

// closeTimeout is how long a pool may take to close. It waits for acquired connections,
// without a limit if a test never releases them.
const closeTimeout = 20 * time.Second

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
		case <-time.After(closeTimeout):
			t.Errorf("%d connections were acquired from the pool and not released", pool.Stat().AcquiredConns())
		}
	})
	return pool
}
