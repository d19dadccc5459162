package pgtest_test

import (
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestServer_KeepsItsRows(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*pgtest.Server){
		"Fast":      func(s *pgtest.Server) { s.Restart(pgtest.Fast) },
		"Immediate": func(s *pgtest.Server) { s.Restart(pgtest.Immediate) },
		"Kill":      func(s *pgtest.Server) { s.Kill(); s.Start() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := pgtest.NewServer(t, pgtest.ServerOptions{Durable: true})
			pool := s.New(items)
			if n := count(t, pool); n != 2 {
				t.Fatal(n)
			}
			restart(s)
			pool.Reset() // its connections are dead; a test of the product would retry
			if n := count(t, pool); n != 2 {
				t.Errorf("%d rows after the restart", n)
			}
		})
	}
}

func TestServer_UsesSettings(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{Settings: []string{"max_connections=20", "work_mem=5MB"}})
	pool := s.New(pgtest.Schema{})
	for setting, want := range map[string]string{
		"max_connections": "20", "work_mem": "5MB", "fsync": "off", "listen_addresses": "",
	} {
		var got string
		if err := pool.QueryRow(t.Context(), "select current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", setting, got, err, want)
		}
	}
}

func TestServer_DurableWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewServer(t, pgtest.ServerOptions{Durable: true}).New(pgtest.Schema{})
	var fsync, commit, pages string
	err := pool.QueryRow(t.Context(), `select current_setting('fsync'), current_setting('synchronous_commit'),
		current_setting('full_page_writes')`).Scan(&fsync, &commit, &pages)
	if err != nil || fsync != "on" || commit != "on" || pages != "on" {
		t.Error(fsync, commit, pages, err)
	}
}
