package standby

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a primary with the tables, a standby, and a router that runs.
type fixture struct {
	*Router
	t                *testing.T
	server           *pgtest.Server // the standby
	primary, standby *pgxpool.Pool

	mu      sync.Mutex
	changes []string // what OnChange got
}

func setup(t *testing.T, maxLag time.Duration) *fixture {
	t.Helper()
	server := pgtest.NewServer(t, pgtest.ServerOptions{Durable: true})
	f := &fixture{t: t, primary: server.New(pgtest.SQL(cuelight.Schema, cuelight.Triggers))}
	f.server = server.Standby()
	f.standby = f.server.Pool(f.primary.Config().ConnConfig.Database)
	f.Router = f.start(f.standby, maxLag)
	f.waitFor("")
	return f
}

// start runs a router until the test ends.
func (f *fixture) start(to *pgxpool.Pool, maxLag time.Duration) *Router {
	r := New(Options{
		Primary: f.primary, Position: f.primary, Standby: to, MaxLag: maxLag, interval: 20 * time.Millisecond,
		OnChange: func(reason string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.changes = append(f.changes, reason)
		},
	})
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(f.t.Context()); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(running.Wait)
	return r
}

func (f *fixture) waitFor(reason string) {
	f.t.Helper()
	waittest.Equal(f.t, "the reason", reason, func() string { return f.Status().Reason })
}

// wantChanges compares the changes: yes if the standby was used from then on.
func (f *fixture) wantChanges(want ...bool) {
	f.t.Helper()
	waittest.Equal(f.t, "the changes", fmt.Sprint(want), func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		var got []bool
		for _, reason := range f.changes {
			got = append(got, reason == "")
		}
		return fmt.Sprint(got)
	})
}

func (f *fixture) exec(on *pgxpool.Pool, sql string) {
	f.t.Helper()
	if _, err := on.Exec(f.t.Context(), sql); err != nil {
		f.t.Fatal(err)
	}
}

// count returns how many tasks a read shows, and whether it went to the standby.
func (f *fixture) count() (tasks int, onStandby bool) {
	f.t.Helper()
	err := f.QueryRow(f.t.Context(), "select count(*), pg_is_in_recovery() from tasks").Scan(&tasks, &onStandby)
	if err != nil {
		f.t.Fatal(err)
	}
	return tasks, onStandby
}
