package pgtest_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

// hang makes the test binary a process that has a database and does nothing.
const hang = "PGTEST_HANG"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var items = pgtest.SQL(
	"create table items (id int primary key)",
	"insert into items values (1); insert into items values (2)",
)

func count(t *testing.T, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) (n int) {
	t.Helper()
	if err := q.QueryRow(t.Context(), "select count(*) from items").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNew_HasTheSchemaAndIsPrivate(t *testing.T) {
	t.Parallel()
	one, two := pgtest.New(t, items), pgtest.New(t, items)
	if _, err := one.Exec(t.Context(), "delete from items"); err != nil {
		t.Fatal(err)
	}
	if a, b := count(t, one), count(t, two); a != 0 || b != 2 {
		t.Errorf("after deleting in one database: %d and %d rows, want 0 and 2", a, b)
	}
}

func TestNew_IsEmptyForTheZeroSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	var n int
	err := pool.QueryRow(t.Context(), "select count(*) from pg_tables where schemaname = 'public'").Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("tables: %d, %v", n, err)
	}
}

func TestFunc_IsAppliedOncePerKey(t *testing.T) {
	t.Parallel()
	applied := 0
	schema := pgtest.Func(rand.Text(), func(ctx context.Context, conn *pgx.Conn) error {
		applied++
		_, err := conn.Exec(ctx, "create table items (id int)")
		return err
	})
	for range 3 {
		if n := count(t, pgtest.New(t, schema)); n != 0 {
			t.Errorf("%d rows", n)
		}
	}
	if applied != 1 {
		t.Errorf("applied %d times", applied)
	}
}

func TestNew_RoleOwnsItsDatabaseAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, items)
	_, err := pool.Exec(t.Context(), "create schema s; create function s.f() returns int language sql as 'select 1'")
	if err != nil {
		t.Error(err)
	}
	if _, err := pool.Exec(t.Context(), "create role other"); err == nil {
		t.Error("the role may create roles")
	}
}

func TestNew_ConnectionStringWorksForOthers(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, items)
	dsn := pool.Config().ConnString()

	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if n := count(t, conn); n != 2 {
		t.Errorf("pgx reads %d rows, want 2", n)
	}

	out, err := exec.Command(pgtest.Program(t, "psql"), dsn, "-Atc", "select count(*) from items").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "2" {
		t.Errorf("psql: %s, %v", out, err)
	}
}

func TestNew_DatabaseIsDroppedWithTheTest(t *testing.T) {
	t.Parallel()
	admin := pgtest.New(t, pgtest.Schema{})
	var name string
	var left *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		pool := pgtest.New(t, items)
		name = pool.Config().ConnConfig.Database
		// A session that is still open must not keep the database alive.
		var err error
		if left, err = pgx.Connect(context.Background(), pool.Config().ConnString()); err != nil {
			t.Fatal(err)
		}
	})
	defer left.Close(context.Background())
	var n int
	err := admin.QueryRow(t.Context(), "select count(*) from pg_database where datname = $1", name).Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("database %q: found %d, %v", name, n, err)
	}
}

func TestNew_UsesTheServerOfTheEnvironment(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{})
	cmd := testCommand(t, "TestNew_HasTheSchemaAndIsPrivate", pgtest.URLEnv+"="+s.URL("postgres"))
	cmd.Args = append(cmd.Args, "-test.v")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), url.QueryEscape(s.SocketDir())) {
		t.Errorf("%v\n%s", err, out)
	}
}

// testCommand returns a command that runs one test of this binary.
func testCommand(t *testing.T, test, env string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), env)
	return cmd
}

func TestNew_ServerAndDataEndWithAKilledProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(hang) != "" {
		pool := pgtest.New(t, items)
		fmt.Printf("READY %s\n", pool.Config().ConnConfig.Host)
		select {}
	}
	if os.Getenv(pgtest.URLEnv) != "" {
		t.Skip("a given server does not end with the process")
	}
	cmd := testCommand(t, t.Name(), hang+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var socketDir string
	for lines := bufio.NewScanner(out); socketDir == "" && lines.Scan(); {
		socketDir, _ = strings.CutPrefix(lines.Text(), "READY ")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if !filepath.IsAbs(socketDir) {
		t.Fatalf("the process printed %q, want the directory of its socket", socketDir)
	}
	dir := filepath.Dir(socketDir)
	waittest.Until(t, dir+" is removed", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}

func BenchmarkNew(b *testing.B) {
	pgtest.New(b, items) // starts the server and makes the template
	for b.Loop() {
		pgtest.New(b, items)
	}
}
