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
			dir := database(t)
			starter := spawn(t, dir, nil)
			other := spawn(t, dir, nil)
			if starter.adopted || !other.adopted || starter.url != other.url {
				t.Fatalf("starter %+v, other %+v", starter, other)
			}
			first, last := starter, other
			if !starterFirst {
				first, last = other, starter
			}
			pid := serverPID(t, dir)
			first.leave("")
			do(t, last.url, createKeep)
			if now := serverPID(t, dir); now != pid {
				t.Errorf("server %d was replaced by %d", pid, now)
			}
			last.leave("")
			stopped(t, dir, last.url)
		})
	}
}

func TestClose_StarterThatLivesOnDoesNotKeepTheServer(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := database(t)
	starter := spawn(t, dir, nil)
	s := begin(t, postgres.Options{Dir: dir})
	starter.leave("close and stay\n")

	// It is still the parent: were it not to take notice, what is killed here
	// would stay a zombie and pass for alive.
	kill(t, serverPID(t, dir))
	waitDone(t, s)
	end(t, s)
	s = begin(t, postgres.Options{Dir: dir})
	if s.Adopted() {
		t.Error("adopted a dead server")
	}
}

func TestStart_ConcurrentlyStartsOneServer(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := directory(t)
	var all []*userProcess
	for range 5 {
		all = append(all, launch(t, dir, nil))
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
		p.in.Close() // all leave at once, too
	}
	for _, p := range all {
		if line := p.line(); line != "CLOSED <nil>" {
			t.Error(line)
		}
	}
	stopped(t, dir, all[0].url)
}

func TestServer_OutlivesItsKilledStarter(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := database(t)
	starter := spawn(t, dir, nil)
	s := begin(t, postgres.Options{Dir: dir})
	starter.kill()
	do(t, s.URL(), createKeep)
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	end(t, s)
	stopped(t, dir, s.URL())
}

func TestStart_AdoptsAServerWithoutUsers(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := database(t)
	starter := spawn(t, dir, nil)
	do(t, starter.url, createKeep)
	starter.kill()

	s := begin(t, postgres.Options{Dir: dir})
	if !s.Adopted() {
		t.Error("started a second server")
	}
	if got := do(t, s.URL(), readKeep); got != "kept" {
		t.Errorf("found %q", got)
	}
	end(t, s)
	stopped(t, dir, s.URL())
}

func TestDone_ReportsAKilledServerWhichRecovers(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := database(t)
	starter := begin(t, postgres.Options{Dir: dir})
	adopter := begin(t, postgres.Options{Dir: dir})
	do(t, starter.URL(), createKeep)
	kill(t, serverPID(t, dir))
	for _, s := range []*postgres.Server{starter, adopter} {
		waitDone(t, s)
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), "the database server has ended") {
			t.Errorf("it ended with %v", err)
		}
	}
	if err := starter.Err(); !strings.Contains(err.Error(), "killed") {
		t.Errorf("it does not say how: %v", err)
	}

	// The first to come back starts it although the other has not let go.
	end(t, starter)
	starter = begin(t, postgres.Options{Dir: dir})
	if starter.Adopted() {
		t.Error("adopted a dead server")
	}
	if got := do(t, starter.URL(), readKeep); got != "kept" {
		t.Errorf("found %q", got)
	}
	// Its old user is the last to leave, and stops the new server.
	end(t, starter)
	if got := do(t, starter.URL(), readKeep); got != "kept" {
		t.Errorf("pulled away: %q", got)
	}
	end(t, adopter)
	stopped(t, dir, starter.URL())
}

func TestStart_RecoversAfterStarterAndServerWereKilled(t *testing.T) {
	t.Parallel()
	needServer(t)
	dir := database(t)
	starter := spawn(t, dir, nil)
	do(t, starter.url, createKeep)
	// A busy session holds on to the shared memory for a while.
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

	s := begin(t, postgres.Options{Dir: dir})
	if s.Adopted() {
		t.Error("adopted a dead server")
	}
	if got := do(t, s.URL(), readKeep); got != "kept" {
		t.Errorf("found %q", got)
	}
}

func waitDone(t *testing.T, s *postgres.Server) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the end of the server goes unnoticed")
	}
}
