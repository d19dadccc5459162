package pgtest_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestEphemeral_ListensOnlyOnTheGivenAddresses(t *testing.T) {
	t.Parallel()
	s := startEphemeral(t, pgtest.EphemeralOptions{})
	if s.Addr() != "" {
		t.Errorf("the server listens at %q", s.Addr())
	}
	expectText(t, s.URL("postgres"), "show listen_addresses", "")

	s = startEphemeral(t, pgtest.EphemeralOptions{Listen: []string{"127.0.0.1"}})
	expectText(t, pgtest.TCPURL("postgres", s.Addr()), "select host(inet_server_addr())", "127.0.0.1")
	expectText(t, s.URL("postgres"), "select concat(inet_server_addr(), ' ', current_user)", " cuelight")
}

func TestEphemeral_KeepsItsPortAndItsRowsAcrossRestarts(t *testing.T) {
	t.Parallel()
	s := startEphemeral(t, pgtest.EphemeralOptions{Durable: true, Listen: []string{"127.0.0.1"}})
	addr := s.Addr()
	must(t, s.CreateDatabase(t.Context(), `odd "name"`))
	query(t, pgtest.TCPURL(`odd "name"`, s.Addr()), "create table items (id int); insert into items values (7)")
	for _, end := range []func() error{
		func() error { return s.Stop(t.Context(), pgtest.Smart) },
		func() error { return s.Stop(t.Context(), pgtest.Fast) },
		func() error { return s.Stop(t.Context(), pgtest.Immediate) },
		s.Kill,
	} {
		must(t, end())
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Error("the stopped server accepts connections")
		}
		must(t, s.Start(t.Context()))
		if s.Addr() != addr {
			t.Errorf("the address changed from %s to %s", addr, s.Addr())
		}
		expectText(t, pgtest.TCPURL(`odd "name"`, s.Addr()), "select id::text from items", "7")
	}
}

func TestEphemeralOptions_DurableDecidesAboutFsync(t *testing.T) {
	t.Parallel()
	const safety = `select string_agg(setting, ' ' order by name) from pg_settings
		where name in ('fsync', 'full_page_writes', 'synchronous_commit')`
	expectText(t, startEphemeral(t, pgtest.EphemeralOptions{}).URL("postgres"), safety, "off off on")
	expectText(t, startEphemeral(t, pgtest.EphemeralOptions{Durable: true}).URL("postgres"), safety, "on on on")
}

func TestSet_ChangesSettings(t *testing.T) {
	t.Parallel()
	s := startEphemeral(t, pgtest.EphemeralOptions{Settings: []string{"work_mem = 5MB", "application_name=it's"}})
	expectText(t, s.URL("postgres"), "show work_mem", "5MB")
	expectText(t, s.URL("postgres"), "show application_name", "it's")
	must(t, s.Set(t.Context(), "work_mem", "6MB"))
	expectText(t, s.URL("postgres"), "show work_mem", "6MB")
	must(t, s.Set(t.Context(), "default_transaction_read_only", "on"))
	must(t, s.Set(t.Context(), "default_transaction_read_only", "off"))
	expectText(t, s.URL("postgres"), "show transaction_read_only", "off")
}

func TestStartEphemeral_NamesAnInvalidSetting(t *testing.T) {
	t.Parallel()
	for _, o := range []pgtest.EphemeralOptions{
		{Settings: []string{"work_mem"}},
		{Settings: []string{"no_such_setting=1"}},
		{Listen: []string{"127.0.0.1"}, Trust: []string{"anybody"}},
	} {
		s, err := pgtest.StartEphemeral(t.Context(), o)
		if err == nil {
			t.Errorf("%+v was accepted", o)
			must(t, s.Close())
			continue
		}
		what := strings.Join(append(o.Settings, o.Trust...), "")
		if !strings.Contains(err.Error(), strings.TrimSuffix(what, "=1")) {
			t.Errorf("the error does not contain %s: %v", what, err)
		}
	}
}

func TestStop_SmartWaitsForSessions(t *testing.T) {
	t.Parallel()
	s := startEphemeral(t, pgtest.EphemeralOptions{})
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx, pgtest.Smart); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a session: %v", err)
	}
	must(t, conn.Close(t.Context()))
	waittest.Until(t, "the server stops", func() bool {
		return s.Start(t.Context()) == nil // it cannot start while it runs
	})
}

func TestStart_AfterTheServerEndedByItself(t *testing.T) {
	t.Parallel()
	s := startEphemeral(t, pgtest.EphemeralOptions{})
	if err := s.Start(t.Context()); err == nil {
		t.Error("a running server was started again")
	}
	// The server may end before it answers.
	_, _ = queryText(t.Context(), s.URL("postgres"),
		"copy (select 1 where false) to program 'kill -INT $(head -1 postmaster.pid)'")
	waittest.Until(t, "it has ended", func() bool {
		_, err := queryText(t.Context(), s.URL("postgres"), "select 'x'")
		return err != nil
	})
	waittest.Until(t, "it can be started", func() bool { return s.Start(t.Context()) == nil })
	expectText(t, s.URL("postgres"), "select 'x'", "x")
}

func TestFreeze_StopsAnswersUntilThaw(t *testing.T) {
	t.Parallel()
	s := startEphemeral(t, pgtest.EphemeralOptions{Listen: []string{"127.0.0.1"}})
	conn, err := pgx.Connect(t.Context(), pgtest.TCPURL("postgres", s.Addr()))
	must(t, err)
	defer conn.Close(context.Background())
	must(t, s.Freeze())
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "select 1")
		answered <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = queryText(ctx, pgtest.TCPURL("postgres", s.Addr()), "select 'x'")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("query in a new session: %v", err)
	}
	select {
	case err := <-answered:
		t.Errorf("query in an existing session: %v", err)
	default:
	}
	must(t, s.Thaw())
	must(t, <-answered)
	expectText(t, pgtest.TCPURL("postgres", s.Addr()), "select 'x'", "x")
}

func TestFreeze_DoesNotPreventStopOrKill(t *testing.T) {
	t.Parallel()
	s := startEphemeral(t, pgtest.EphemeralOptions{})
	must(t, s.Freeze())
	must(t, s.Kill())
	must(t, s.Start(t.Context()))
	must(t, s.Freeze())
	must(t, s.Stop(t.Context(), pgtest.Fast))
	must(t, s.Start(t.Context()))
	must(t, s.Freeze()) // Close must work, too
}
