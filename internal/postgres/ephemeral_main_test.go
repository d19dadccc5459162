package postgres_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/postgres"
)

// startEphemeral starts a server for the test, and checks that Close removes it.
func startEphemeral(t *testing.T, o postgres.EphemeralOptions) *postgres.Ephemeral {
	t.Helper()
	s, err := postgres.StartEphemeral(t.Context(), o)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	must(t, err)
	closeAtEnd(t, s)
	return s
}

func closeAtEnd(t *testing.T, s *postgres.Ephemeral) {
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

// queryText runs a query with one text as its result, on a connection of its own.
func queryText(ctx context.Context, address, query string) (text string, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, query).Scan(&text)
	return text, err
}

func expectText(t *testing.T, address, query, want string) {
	t.Helper()
	if got, err := queryText(t.Context(), address, query); err != nil || got != want {
		t.Errorf("%s: %q, %v; want %q", query, got, err, want)
	}
}

func execSQL(t *testing.T, address, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	must(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), sql)
	must(t, err)
}
