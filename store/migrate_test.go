package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestMigrate_CreatesTheTablesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	g, err := store.NewGraph("other", store.Node{Name: "only"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTables(b.pool, g)
	if err := s.Check(ctx); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("check without tables: %v", err)
	}
	versions := make(chan int, 6)
	for range cap(versions) {
		go func() {
			r, err := s.Migrate(ctx)
			if err != nil {
				t.Error(err)
			}
			versions <- r.From
		}()
	}
	var from []int
	for range cap(versions) {
		from = append(from, <-versions)
	}
	slices.Sort(from)
	current := store.SchemaVersion
	if !slices.Equal(from, []int{0, current, current, current, current, current}) {
		t.Errorf("Migrate returned the versions %v, want 0 once", from)
	}
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
}

// A migration waits for another one, and reads large tables.
func TestMigrate_IgnoresTheRolesStatementTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := b.pool.Begin(t.Context())
	must(t, err)
	defer func() { _ = other.Rollback(t.Context()) }()
	_, err = other.Exec(t.Context(), `select pg_advisory_xact_lock(hashtext('cuelight migrate'))`)
	must(t, err)
	config := b.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["statement_timeout"] = "500"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	defer conn.Close(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := store.New(conn, b.Graph()).Migrate(context.Background())
		ended <- err
	}()
	waittest.Until(t, "the migration has waited for longer", func() bool {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		return b.queryInt(`select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'
			and clock_timestamp() > query_start + interval '1 s'`) == 1
	})
	must(t, other.Rollback(t.Context()))
	must(t, <-ended)
}

func TestMigrate_NeedsUTF8(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	_, err := server.Pool("postgres").Exec(ctx, "create database latin encoding 'LATIN1' locale 'C' template template0")
	must(t, err)
	st := store.New(server.Pool("latin"), store.Video())
	_, err = st.Migrate(ctx)
	for _, err := range []error{err, st.Check(ctx)} {
		if !errors.Is(err, store.ErrEncoding) || !strings.Contains(err.Error(), "the encoding of the database is LATIN1, but UTF8 is needed") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestMigrate_NeedsASchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	conn, err := pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "set search_path = nowhere")
	must(t, err)
	st := store.New(conn.Conn(), store.Video())
	if err := st.Check(t.Context()); !errors.Is(err, store.ErrNoSearchPath) || !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("Check returned %v", err)
	}
	if _, err := st.Migrate(t.Context()); !errors.Is(err, store.ErrNoSearchPath) {
		t.Errorf("Migrate returned %v", err)
	}
}

func TestMigrate_RejectsTablesOfAnotherVersionOrShape(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, c := range []struct {
		change string
		want   error
	}{
		{"version = 99, migrated_to = 99", store.ErrSchemaNewer},
		{"version = 1, migrated_to = 1, shape = 'ingest'", store.ErrSchemaUnknown},
		{fmt.Sprintf("version = 1, migrated_to = %d, shape = 'first'", store.SchemaVersion), store.ErrSchemaShape},
	} {
		b.exec("update cuelight_schema set " + c.change)
		if err := b.Check(ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: Check returned %v, want %v", c.change, err, c.want)
		}
		if _, err := b.Migrate(ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: Migrate returned %v, want %v", c.change, err, c.want)
		}
	}
	b.exec("update cuelight_schema set migrated_to = 99, shape = $1", b.Graph().String())
	if err := b.Check(ctx); err != nil {
		t.Errorf("newer tables that support this program: Check returned %v", err)
	}
}
