package pgserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/testwait"
)

func TestAPromotedStandbyHasWhatThePrimaryAcknowledged(t *testing.T) {
	t.Parallel()
	primary := start(t, pgserver.Options{Durable: true, Listen: []string{"127.0.0.1"}})
	exec(t, primary.URL("postgres"), "create table items (id int); insert into items values (1)")
	standby, err := primary.Standby(t.Context(), pgserver.StandbyOptions{Name: "it's two", Settings: []string{"work_mem=7MB"}})
	must(t, err)
	closes(t, standby)
	expect(t, pgserver.TCPURL("postgres", standby.Addr()), "select pg_is_in_recovery()::text || current_setting('work_mem')", "true7MB")

	must(t, primary.Set(t.Context(), "synchronous_standby_names", `"it's two"`))
	testwait.Until(t, "the standby is synchronous", func() bool {
		state, _ := ask(t.Context(), primary.URL("postgres"), "select sync_state from pg_stat_replication")
		return state == "sync"
	})
	exec(t, primary.URL("postgres"), "insert into items values (2)")

	// No acknowledgement without the standby's.
	must(t, standby.Pause())
	waited := make(chan error, 1)
	go func() {
		_, err := ask(context.Background(), primary.URL("postgres"), "insert into items values (3) returning 'x'")
		waited <- err
	}()
	select {
	case err := <-waited:
		t.Errorf("committed without the standby: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, standby.Resume())
	must(t, <-waited)

	both := pgserver.TCPURL("postgres", standby.Addr(), primary.Addr())
	expect(t, both, "select inet_server_port() || ''", port(t, primary))
	must(t, primary.Kill())
	must(t, standby.Promote(t.Context()))
	expect(t, both, "select inet_server_port() || ''", port(t, standby))
	expect(t, both, "select string_agg(id::text, ' ' order by id) from items", "1 2 3")
	exec(t, both, "insert into items values (4)")
}

func port(t *testing.T, s *pgserver.Server) string {
	t.Helper()
	answer, err := ask(t.Context(), pgserver.TCPURL("postgres", s.Addr()), "select inet_server_port() || ''")
	must(t, err)
	return answer
}
