package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestPromote_KeepsAcknowledgedCommits(t *testing.T) {
	t.Parallel()
	primary := startEphemeral(t, pgtest.EphemeralOptions{Durable: true, Listen: []string{"127.0.0.1"}})
	query(t, primary.URL("postgres"), "create table items (id int); insert into items values (1)")
	standby, err := primary.Standby(t.Context(), "it's two")
	must(t, err)
	closeAtEnd(t, standby)
	expectText(t, pgtest.TCPURL("postgres", standby.Addr()),
		"select pg_is_in_recovery()::text", "true")

	must(t, primary.Set(t.Context(), "synchronous_standby_names", `"it's two"`))
	waittest.Until(t, "the standby is synchronous", func() bool {
		state, _ := queryText(t.Context(), primary.URL("postgres"), "select sync_state from pg_stat_replication")
		return state == "sync"
	})
	query(t, primary.URL("postgres"), "insert into items values (2)")

	// The primary acknowledges nothing that the standby has not received.
	must(t, standby.Freeze())
	waited := make(chan error, 1)
	go func() {
		_, err := queryText(context.Background(), primary.URL("postgres"), "insert into items values (3) returning 'x'")
		waited <- err
	}()
	select {
	case err := <-waited:
		t.Errorf("committed without the standby: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, standby.Thaw())
	must(t, <-waited)

	both := pgtest.TCPURL("postgres", standby.Addr(), primary.Addr())
	expectText(t, both, "select inet_server_port() || ''", queryPort(t, primary))
	must(t, primary.Kill())
	must(t, standby.Promote(t.Context()))
	expectText(t, both, "select inet_server_port() || ''", queryPort(t, standby))
	expectText(t, both, "select string_agg(id::text, ' ' order by id) from items", "1 2 3")
	query(t, both, "insert into items values (4)")
}

func queryPort(t *testing.T, s *pgtest.Ephemeral) string {
	t.Helper()
	answer, err := queryText(t.Context(), pgtest.TCPURL("postgres", s.Addr()), "select inet_server_port() || ''")
	must(t, err)
	return answer
}
