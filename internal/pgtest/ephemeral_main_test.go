package pgtest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/postgres"
)

// startEphemeral starts a server for the test, and checks that Close removes it.
func startEphemeral(t *testing.T, o pgtest.EphemeralOptions) *pgtest.Ephemeral {
	t.Helper()
	s, err := pgtest.StartEphemeral(t.Context(), o)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	must(t, err)
	closeAtEnd(t, s)
	return s
}

func closeAtEnd(t *testing.T, s *pgtest.Ephemeral) {
	t.Cleanup(func() {
		must(t, s.Close())
		if _, err := os.Lstat(s.SocketDir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", s.SocketDir(), err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// queryText runs statements on a connection of its own and returns the first column of
// the result as text.
func queryText(ctx context.Context, address, sql string) (string, error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(values, ","), err
}

func query(t *testing.T, address, sql string) string {
	t.Helper()
	text, err := queryText(t.Context(), address, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func expectText(t *testing.T, address, query, want string) {
	t.Helper()
	if got, err := queryText(t.Context(), address, query); err != nil || got != want {
		t.Errorf("%s: %q, %v; want %q", query, got, err, want)
	}
}
