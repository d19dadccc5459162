package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/postgres"
)

const (
	createKeep = "create table keep as select 'kept' as word"
	readKeep   = "select word from keep"
)

func TestClose_LastUserStopsTheServer(t *testing.T) {
	t.Parallel()
	needServer(t)
	for name, starterFirst := range map[string]bool{"StarterLeavesFirst": true, "StarterLeavesLast": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDatabase(t)
			starter := startUser(t, dir, nil)
			other := startUser(t, dir, nil)
			if starter.adopted || !other.adopted || starter.url != other.url {
				t.Fatalf("starter %+v, other %+v", starter, other)
			}
			first, last := starter, other
			if !starterFirst {
				first, last = other, starter
			}
			pid := serverPID(t, dir)
			first.leave("")
			query(t, last.url, createKeep)
			if now := serverPID(t, dir); now != pid {
				t.Errorf("server %d was replaced by %d", pid, now)
			}
			last.leave("")
			wantStopped(t, dir, last.url)
		})
	}
}

func TestClose_StarterThatLivesOnDoesNotKeepTheServer(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := newDatabase(t)
	starter := startUser(t, dir, nil)
	s := startServer(t, postgres.Options{Dir: dir})
	starter.leave("close and stay\n")

	// It is still the parent. If it did not reap the killed server, the server would be
	// a zombie, which counts as alive.
	kill(t, serverPID(t, dir))
	waitDone(t, s)
	closeServer(t, s)
	s = startServer(t, postgres.Options{Dir: dir})
	if s.Adopted() {
		t.Error("adopted a dead server")
	}
}

func TestStart_ConcurrentlyStartsOneServer(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := newDir(t)
	var all []*userProcess
	for range 5 {
		all = append(all, launchUser(t, dir, nil))
	}
	starters := 0
	for _, p := range all {
		if p.await(); !p.adopted {
			starters++
		}
	}
	if starters != 1 {
		t.Errorf("%d processes started a server", starters)
	}
	for _, p := range all {
		p.in.Close() // all close at the same time
	}
	for _, p := range all {
		if line := p.line(); line != "CLOSED <nil>" {
			t.Error(line)
		}
	}
	wantStopped(t, dir, all[0].url)
}

func TestServer_OutlivesItsKilledStarter(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := newDatabase(t)
	starter := startUser(t, dir, nil)
	s := startServer(t, postgres.Options{Dir: dir})
	starter.kill()
	query(t, s.URL(), createKeep)
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	closeServer(t, s)
	wantStopped(t, dir, s.URL())
}

func TestStart_AdoptsAServerWithoutUsers(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := newDatabase(t)
	starter := startUser(t, dir, nil)
	query(t, starter.url, createKeep)
	starter.kill()

	s := startServer(t, postgres.Options{Dir: dir})
	if !s.Adopted() {
		t.Error("started a second server")
	}
	if got := query(t, s.URL(), readKeep); got != "kept" {
		t.Errorf("rows: %q", got)
	}
	closeServer(t, s)
	wantStopped(t, dir, s.URL())
}

func TestDone_ReportsAKilledServerWhichRecovers(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := newDatabase(t)
	starter := startServer(t, postgres.Options{Dir: dir})
	adopter := startServer(t, postgres.Options{Dir: dir})
	query(t, starter.URL(), createKeep)
	kill(t, serverPID(t, dir))
	for _, s := range []*postgres.Server{starter, adopter} {
		waitDone(t, s)
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), "the database server has ended") {
			t.Errorf("it ended: %v", err)
		}
	}
	if err := starter.Err(); !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v; want how the server ended", err)
	}

	// The next user starts it although the adopter has not closed it.
	closeServer(t, starter)
	starter = startServer(t, postgres.Options{Dir: dir})
	if starter.Adopted() {
		t.Error("adopted a dead server")
	}
	if got := query(t, starter.URL(), readKeep); got != "kept" {
		t.Errorf("rows: %q", got)
	}
	// The adopter is the last user, and stops the new server.
	closeServer(t, starter)
	if got := query(t, starter.URL(), readKeep); got != "kept" {
		t.Errorf("the rows of the adopter: %q", got)
	}
	closeServer(t, adopter)
	wantStopped(t, dir, starter.URL())
}

func TestStart_RecoversAfterStarterAndServerWereKilled(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := newDatabase(t)
	starter := startUser(t, dir, nil)
	query(t, starter.url, createKeep)
	// A busy session keeps the shared memory attached for a while.
	busy, err := pgx.Connect(t.Context(), starter.url)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close(t.Context())
	if _, err := busy.Exec(t.Context(), "begin; insert into keep values ('lost')"); err != nil {
		t.Fatal(err)
	}
	kill(t, serverPID(t, dir))
	starter.kill()

	s := startServer(t, postgres.Options{Dir: dir})
	if s.Adopted() {
		t.Error("adopted a dead server")
	}
	if got := query(t, s.URL(), readKeep); got != "kept" {
		t.Errorf("rows: %q", got)
	}
}

func waitDone(t *testing.T, s *postgres.Server) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("Done was not closed")
	}
}
