package pgserver_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a server for the test, and expects nothing to be left of it.
func start(t *testing.T, o pgserver.Options) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(t.Context(), o)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	must(t, err)
	closes(t, s)
	return s
}

func closes(t *testing.T, s *pgserver.Server) {
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

// ask connects, asks one question and leaves.
func ask(ctx context.Context, address, question string) (answer string, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, question).Scan(&answer)
	return answer, err
}

func expect(t *testing.T, address, question, want string) {
	t.Helper()
	if got, err := ask(t.Context(), address, question); err != nil || got != want {
		t.Errorf("%s: %q, %v; want %q", question, got, err, want)
	}
}

func exec(t *testing.T, address, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	must(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), sql)
	must(t, err)
}
