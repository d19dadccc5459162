package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/postgres"
)

func ownerUID(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run this test")
	}
}

func TestStart_AsRootUsesTheSystemUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := filepath.Join(newDir(t), "db")
	startServer(t, postgres.Options{Dir: dir})
	account, err := postgres.LookupAccount()
	if err != nil {
		t.Fatal(err)
	}
	if account.Name != "postgres" || account.UID == 0 {
		t.Errorf("%+v", account)
	}
	proc := fmt.Sprintf("/proc/%d", serverPID(t, dir))
	if uid := ownerUID(t, proc); uid != account.UID {
		t.Errorf("the server runs as %d, want %d", uid, account.UID)
	}
	if uid := ownerUID(t, dir); uid != 0 {
		t.Errorf("the directory belongs to %d", uid)
	}
}

func TestStart_HidesTheEnvironment(t *testing.T) {
	t.Setenv("PGPORT", "9999")
	t.Setenv("PGOPTIONS", "-c work_mem=9MB")
	t.Setenv("CUELIGHT_ADMIN_SECRET", "swordfish")
	dir := newDatabase(t)
	s := startServer(t, postgres.Options{Dir: dir})
	if got := query(t, s.URL(), "show port"); got != "5432" {
		t.Errorf("port is %s", got)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", serverPID(t, dir)))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil || len(env) == 0 {
		t.Fatal(err)
	}
	if strings.Contains(string(env), "swordfish") || strings.Contains(string(env), "9999") {
		t.Errorf("the environment has %q", env)
	}
}

func TestStart_WithoutRootUsesTheUser(t *testing.T) {
	t.Parallel()
	needServer(t)
	cred := otherAccount(t)
	dir := filepath.Join(newDir(t), "db")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, int(cred.Uid), int(cred.Gid))); err != nil {
		t.Fatal(err)
	}
	p := startUser(t, dir, cred)
	query(t, p.url, createKeep)
	pid := serverPID(t, dir)
	if uid := ownerUID(t, fmt.Sprintf("/proc/%d", pid)); uid != int(cred.Uid) {
		t.Errorf("the server runs as %d, want %d", uid, cred.Uid)
	}

	// Root uses the same server and changes no owner.
	s := startServer(t, postgres.Options{Dir: dir})
	if !s.Adopted() {
		t.Error("root started a second server")
	}
	p.leave("")
	closeServer(t, s)
	wantStopped(t, dir, s.URL())
	s = startServer(t, postgres.Options{Dir: dir})
	if uid := ownerUID(t, fmt.Sprintf("/proc/%d", serverPID(t, dir))); uid != int(cred.Uid) {
		t.Errorf("root starts the server as %d, want %d", uid, cred.Uid)
	}
	closeServer(t, s)

	p = startUser(t, dir, cred)
	if got := query(t, p.url, readKeep); got != "kept" {
		t.Errorf("rows: %q", got)
	}
	p.leave("")
}

func TestStart_WithoutRootRejectsAnotherUsersCluster(t *testing.T) {
	t.Parallel()
	needServer(t)
	cred := otherAccount(t)
	dir := newDatabase(t)
	closeServer(t, startServer(t, postgres.Options{Dir: dir}))
	for _, name := range []string{"lock", "users"} { // otherwise Start fails at these first
		if err := os.Chmod(filepath.Join(dir, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	p := launchUser(t, dir, cred)
	if line := p.line(); !strings.Contains(line, "belongs to another user") {
		t.Errorf("the output is %q", line)
	}
}

// unreachableDir creates a directory that only root can enter.
func unreachableDir(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir := filepath.Join(newDir(t), "root")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestStart_MovesFromAnUnreachableDirectory(t *testing.T) {
	t.Parallel()
	parent, fallback := unreachableDir(t), filepath.Join(newDir(t), "fallback")
	o := postgres.Options{Dir: filepath.Join(parent, "db"), FallbackDir: fallback}
	s := startServer(t, o)
	if !strings.HasPrefix(s.Dir(), fallback+"/") {
		t.Errorf("the database is in %s", s.Dir())
	}
	query(t, s.URL(), createKeep)
	other := startServer(t, o)
	if !other.Adopted() {
		t.Error("started a second server")
	}
	closeServer(t, other)
	closeServer(t, s)
	wantStopped(t, s.Dir(), s.URL())

	t.Run("KeepsItsDatabase", func(t *testing.T) {
		again := startServer(t, o)
		if got := query(t, again.URL(), readKeep); got != "kept" || again.Dir() != s.Dir() {
			t.Errorf("rows: %q in %s", got, again.Dir())
		}
	})
	moved := postgres.Options{Dir: filepath.Join(parent, "moved"), FallbackDir: fallback}
	t.Run("TakesItAlongWhenMoved", func(t *testing.T) {
		if err := os.Rename(o.Dir, moved.Dir); err != nil {
			t.Fatal(err)
		}
		again := startServer(t, moved)
		if got := query(t, again.URL(), readKeep); got != "kept" || again.Dir() != s.Dir() {
			t.Errorf("rows: %q in %s", got, again.Dir())
		}
	})
	t.Run("ANewOneWithTheOldPathGetsItsOwn", func(t *testing.T) {
		fresh := startServer(t, o)
		if fresh.Dir() == s.Dir() {
			t.Error("a new directory got the database of a moved one")
		}
	})
	t.Run("ACopyDoesNotShareIt", func(t *testing.T) {
		link, err := os.ReadFile(filepath.Join(moved.Dir, "moved-to"))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(parent, "copy")
		writeFile(t, filepath.Join(dir, "moved-to"), string(link))
		wantRefused(t, postgres.Options{Dir: dir, FallbackDir: fallback}, postgres.ErrNotCluster, s.Dir())
	})
	t.Run("IsNotBegunAnewWhenTheDatabaseIsGone", func(t *testing.T) {
		if err := os.Rename(s.Dir(), s.Dir()+".unmounted"); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, moved, postgres.ErrNotCluster, s.Dir()+".unmounted")
	})
}

func TestStart_NamesTheDirectoryThatBlocksACluster(t *testing.T) {
	t.Parallel()
	parent := unreachableDir(t)
	if err := os.Chmod(parent, 0o711); err != nil {
		t.Fatal(err)
	}
	o := postgres.Options{Dir: filepath.Join(parent, "db")}
	closeServer(t, startServer(t, o))
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	err := wantRefused(t, o, postgres.ErrAccount, filepath.Join(o.Dir, "data"))
	if !strings.Contains(err.Error(), "chmod o+x '"+parent+"'") {
		t.Errorf("%v", err)
	}
}
