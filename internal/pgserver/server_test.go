package pgserver_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/testwait"
)

func TestAServerIsOnTheNetworkOnlyWhereItWasTold(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Options{})
	if s.Addr() != "" {
		t.Errorf("it is at %q", s.Addr())
	}
	expect(t, s.URL("postgres"), "show listen_addresses", "")

	s = start(t, pgserver.Options{Listen: []string{"127.0.0.1"}})
	expect(t, pgserver.TCPURL("postgres", s.Addr()), "select host(inet_server_addr())", "127.0.0.1")
	expect(t, s.URL("postgres"), "select concat(inet_server_addr(), ' ', current_user)", " cuelight")
}

func TestAServerKeepsItsPortAndItsRows(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Options{Durable: true, Listen: []string{"127.0.0.1"}})
	addr := s.Addr()
	must(t, s.CreateDatabase(t.Context(), `odd "name"`))
	exec(t, pgserver.TCPURL(`odd "name"`, s.Addr()), "create table items (id int); insert into items values (7)")
	for _, end := range []func() error{
		func() error { return s.Stop(t.Context(), pgserver.Smart) },
		func() error { return s.Stop(t.Context(), pgserver.Fast) },
		func() error { return s.Stop(t.Context(), pgserver.Immediate) },
		s.Kill,
	} {
		must(t, end())
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Error("somebody is still there")
		}
		must(t, s.Start(t.Context()))
		if s.Addr() != addr {
			t.Errorf("it was at %s and is at %s", addr, s.Addr())
		}
		expect(t, pgserver.TCPURL(`odd "name"`, s.Addr()), "select id::text from items", "7")
	}
}

func TestWhatIsThrownAwayNeedNotBeSafe(t *testing.T) {
	t.Parallel()
	const safety = `select string_agg(setting, ' ' order by name) from pg_settings
		where name in ('fsync', 'full_page_writes', 'synchronous_commit')`
	expect(t, start(t, pgserver.Options{}).URL("postgres"), safety, "off off on")
	expect(t, start(t, pgserver.Options{Durable: true}).URL("postgres"), safety, "on on on")
}

func TestSettingsAreThereAndCanBeChanged(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Options{Settings: []string{"work_mem = 5MB", "application_name=it's"}})
	expect(t, s.URL("postgres"), "show work_mem", "5MB")
	expect(t, s.URL("postgres"), "show application_name", "it's")
	must(t, s.Set(t.Context(), "work_mem", "6MB"))
	expect(t, s.URL("postgres"), "show work_mem", "6MB")
	must(t, s.Set(t.Context(), "default_transaction_read_only", "on"))
	must(t, s.Set(t.Context(), "default_transaction_read_only", "off"))
	expect(t, s.URL("postgres"), "show transaction_read_only", "off")
}

func TestAWrongSettingIsSaid(t *testing.T) {
	t.Parallel()
	for _, o := range []pgserver.Options{
		{Settings: []string{"work_mem"}},
		{Settings: []string{"no_such_setting=1"}},
		{Listen: []string{"127.0.0.1"}, Trust: []string{"anybody"}},
	} {
		s, err := pgserver.Start(t.Context(), o)
		if err == nil {
			t.Errorf("%+v was accepted", o)
			must(t, s.Close())
			continue
		}
		if what := strings.Join(append(o.Settings, o.Trust...), ""); !strings.Contains(err.Error(), strings.TrimSuffix(what, "=1")) {
			t.Errorf("the error does not name %s: %v", what, err)
		}
	}
}

func TestSmartWaitsUntilEverybodyHasLeft(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Options{})
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx, pgserver.Smart); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a session: %v", err)
	}
	must(t, conn.Close(t.Context()))
	testwait.Until(t, "the server stops", func() bool {
		return s.Start(t.Context()) == nil // it cannot start while it runs
	})
}

func TestAServerThatEndedByItselfCanBeStarted(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Options{})
	if err := s.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	// The answer may come before the end or not at all.
	_, _ = ask(t.Context(), s.URL("postgres"), "copy (select 1 where false) to program 'kill -INT $(head -1 postmaster.pid)'")
	testwait.Until(t, "it has ended", func() bool {
		_, err := ask(t.Context(), s.URL("postgres"), "select 'x'")
		return err != nil
	})
	testwait.Until(t, "it can be started", func() bool { return s.Start(t.Context()) == nil })
	expect(t, s.URL("postgres"), "select 'x'", "x")
}

func TestAPausedServerSaysNothingUntilItIsResumed(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Options{Listen: []string{"127.0.0.1"}})
	conn, err := pgx.Connect(t.Context(), pgserver.TCPURL("postgres", s.Addr()))
	must(t, err)
	defer conn.Close(context.Background())
	must(t, s.Pause())
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "select 1")
		answered <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := ask(ctx, pgserver.TCPURL("postgres", s.Addr()), "select 'x'"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("to a new session: %v", err)
	}
	select {
	case err := <-answered:
		t.Errorf("to a session that was there: %v", err)
	default:
	}
	must(t, s.Resume())
	must(t, <-answered)
	expect(t, pgserver.TCPURL("postgres", s.Addr()), "select 'x'", "x")
}

func TestAPausedServerCanBeEnded(t *testing.T) {
	t.Parallel()
	s := start(t, pgserver.Options{})
	must(t, s.Pause())
	must(t, s.Kill())
	must(t, s.Start(t.Context()))
	must(t, s.Pause())
	must(t, s.Stop(t.Context(), pgserver.Fast))
	must(t, s.Start(t.Context()))
	must(t, s.Pause()) // and closed so
}
