package postgres_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/postgres"
)

// After a power failure the old server's process id may belong to another process of the
// same user, and the new server believes that the old one runs.
func TestStart_IgnoresAReusedProcessID(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := newDatabase(t)
	starter := startUser(t, dir, nil)
	query(t, starter.url, createKeep)
	pid := serverPID(t, dir)
	kill(t, pid)
	starter.kill()

	account, err := postgres.LookupAccount()
	if err != nil {
		t.Fatal(err)
	}
	innocent := account.Command("sleep", "60")
	child := runWhile(t, innocent, "")
	for _, path := range []string{
		filepath.Join(dir, "data", "postmaster.pid"),
		filepath.Join(dir, "run", ".s.PGSQL.5432.lock"),
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\n")
		writeFile(t, path, strconv.Itoa(innocent.Process.Pid)+"\n"+rest)
	}

	began := time.Now()
	s := startServer(t, postgres.Options{Dir: dir})
	if got := query(t, s.URL(), readKeep); got != "kept" {
		t.Errorf("rows: %q", got)
	}
	t.Logf("started after %v", time.Since(began))
	wantRunning(t, child)
}
