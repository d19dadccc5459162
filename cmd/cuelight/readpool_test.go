package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/waittest"
)

// address returns the database's address with more parameters.
func (p *workDir) address(more url.Values) string {
	p.t.Helper()
	for _, variable := range p.env {
		value, ok := strings.CutPrefix(variable, "DATABASE_URL=")
		if !ok {
			continue
		}
		at, err := url.Parse(value)
		if err != nil {
			p.t.Fatal(err)
		}
		parameters := at.Query()
		for name, values := range more {
			parameters[name] = values
		}
		at.RawQuery = parameters.Encode()
		return at.String()
	}
	p.t.Fatal("the directory has no database")
	return ""
}

// connect opens a connection to the directory's database.
func (p *workDir) connect() *pgx.Conn {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.address(nil))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close(p.t.Context()) })
	return conn
}

// ask returns the value of a query's single row.
func ask[T any](t *testing.T, conn *pgx.Conn, sql string) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Clients may take and hold all of their connections: the work continues.
func TestServe_WorksWhileClientsHoldAllTheirConnections(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	const conns = 4
	address := p.address(url.Values{"pool_max_conns": {fmt.Sprint(conns)}})
	r := p.start("serve", "--listen", "127.0.0.1:0", "--lease", "5s", "--database-url", address)
	s := p.site(r)

	conn := p.connect()
	locker := p.connect()
	tx, err := locker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Only operators' actions write to the audit log.
	if _, err := tx.Exec(t.Context(), "lock table cuelight_audit in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var asking sync.WaitGroup
	_, key, err := access.NewKeyStore(conn).CreateKey(t.Context(), "another", access.Admin.String())
	if err != nil {
		t.Fatal(err)
	}
	other := &site{s.t, s.base, key}
	for range 3 * conns { // no principal may have all of them
		asking.Go(func() { s.repeatRequests(over) })
		asking.Go(func() { other.repeatRequests(over) })
	}
	seen := p.connect()
	held := func() int {
		return ask[int](t, seen,
			"select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	}
	waittest.Until(p.t, "clients hold all connections", func() bool { return held() == conns })

	other.do(http.StatusOK, http.MethodGet, "openapi.json", nil)
	wrongKey := &site{s.t, s.base, strings.Replace(key, key[len(key)-8:], "AAAAAAAA", 1)}
	wrongKey.do(http.StatusUnauthorized, http.MethodGet, "openapi.json", nil)
	p.run(0, "submit", "clip.mp4")
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	s.do(http.StatusOK, http.MethodGet, "readyz", nil) // not before: it listens since then
	last, beats := time.Time{}, 0
	waittest.Until(p.t, "the worker sent five heartbeats", func() bool {
		if at := ask[time.Time](t, seen, "select heartbeat_at from workers"); at != last {
			last, beats = at, beats+1
		}
		return beats > 5
	})
	waittest.Until(p.t, "clients still hold all connections", func() bool { return held() == conns })
	close(over)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); strings.Contains(text, "no heartbeat") || strings.Contains(text, `"msg":"worker lost"`) {
		t.Errorf("it logged\n%s", text)
	}
}

// repeatRequests repeats a request until over is closed, however often it is refused.
func (s *site) repeatRequests(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.base+"api/v1/pauses",
			strings.NewReader(`{"host": "nobody's"}`))
		if err != nil {
			s.t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+s.secret)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			s.t.Error(err)
			return
		}
		_ = resp.Body.Close()
	}
}
