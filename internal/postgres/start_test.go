package postgres_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/postgres"
)

func TestStart_CreatesADurablePrivateServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(newDir(t), "not", "there", "yet")
	s := startServer(t, postgres.Options{Dir: dir})
	if s.Adopted() || s.Dir() != dir {
		t.Errorf("adopted %v, in %q", s.Adopted(), s.Dir())
	}
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "data_checksums": "on",
		"listen_addresses": "", "unix_socket_permissions": "0700", "server_encoding": "UTF8",
		"jit": "off", "shared_buffers": "128MB", "max_connections": "100", "min_wal_size": "256MB",
	} {
		if got := query(t, s.URL(), "show "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if got := query(t, s.URL(), "select current_database() || ' ' || current_user"); got != "cuelight cuelight" {
		t.Errorf("connected to %q", got)
	}
	for _, name := range []string{"data", "run"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestStart_KeepsTheRowsAcrossRestarts(t *testing.T) {
	t.Parallel()
	dir := newDatabase(t)
	s := startServer(t, postgres.Options{Dir: dir})
	query(t, s.URL(), "create table keep as select 'kept' as word")
	closeServer(t, s)
	wantStopped(t, dir, s.URL())

	s = startServer(t, postgres.Options{Dir: dir})
	if s.Adopted() {
		t.Error("adopted a server that had been stopped")
	}
	if got := query(t, s.URL(), "select word from keep"); got != "kept" {
		t.Errorf("rows: %q", got)
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

func TestClose_TwiceIsAllowed(t *testing.T) {
	t.Parallel()
	s := startServer(t, postgres.Options{Dir: newDatabase(t)})
	closeServer(t, s)
	closeServer(t, s)
	select {
	case <-s.Done():
		t.Error("Close closed Done")
	default:
	}
}

func TestStart_AcceptsOddDirectoryNames(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{
		"SpaceAndQuotes": `a b's "media" %s $HOME \n`,
		"Comma":          "a,b",
		"TooLongForASocket": filepath.Join(strings.Repeat("long", 20),
			strings.Repeat("deep", 20), strings.Repeat("path", 20)),
		"NotASCII": "vidéos – 動画",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(newDir(t), dir)
			s := startServer(t, postgres.Options{Dir: dir})
			query(t, s.URL(), "create table keep as select 'kept' as word")
			other := startServer(t, postgres.Options{Dir: dir})
			if !other.Adopted() || other.URL() != s.URL() {
				t.Errorf("adopted %v: %s, not %s", other.Adopted(), other.URL(), s.URL())
			}
			closeServer(t, other)
			socket := query(t, s.URL(), "select split_part(pg_read_file('postmaster.pid'), E'\\n', 5)")
			if len(socket) > 90 {
				t.Errorf("the socket is in %s", socket)
			}
			info, err := os.Stat(socket)
			if err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info, err)
			}
			closeServer(t, s)
			if _, err := os.Stat(socket); err == nil && !strings.HasPrefix(socket, dir) {
				t.Errorf("%s is left behind", socket)
			}
		})
	}
}

func TestStart_ConfigurationCannotOpenTheServer(t *testing.T) {
	t.Parallel()
	dir := newDatabase(t)
	s := startServer(t, postgres.Options{Dir: dir})
	query(t, s.URL(), "alter system set work_mem = '7MB'")
	query(t, s.URL(), "alter system set listen_addresses = '*'")
	closeServer(t, s)
	s = startServer(t, postgres.Options{Dir: dir})
	if a, b := query(t, s.URL(), "show work_mem"), query(t, s.URL(), "show listen_addresses"); a != "7MB" || b != "" {
		t.Errorf("work_mem %q, listen_addresses %q", a, b)
	}
}
