package dbconn

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func TestExplain_GivesTheReasonOfAServerThatIsNotPostgreSQL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, mode, want string }{
		"HangsUp":         {"", "disable", "EOF"},
		"HangsUpTwice":    {"", "prefer", "EOF"},
		"SpeaksSomething": {"HTTP/1.1 400 Bad Request\r\n\r\n", "disable", "message"},
		"RefusesTLS":      {"N", "require", "refused TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := pgx.Connect(t.Context(), "postgres://u@"+answering(t, c.answer)+"/x?sslmode="+c.mode)
			p := Explain(fmt.Errorf("list: %w", err))
			if p.Kind != usererr.Unreachable || !strings.HasPrefix(p.Text, "the database does not answer: ") ||
				!strings.Contains(p.Text, c.want) || strings.Contains(p.Text, "user=") {
				t.Errorf("exit code %d, %s", p.Kind, p.Text)
			}
		})
	}
}

// answering returns the address of a server that sends every client the same bytes.
func answering(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// Closing before reading would reset the connection.
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr().String()
}

func TestExplain_DoesNotBlameTheDatabaseForTheStorageService(t *testing.T) {
	t.Parallel()
	for kind, want := range map[storage.Kind]usererr.Kind{storage.Refused: usererr.Unreachable, storage.Credentials: usererr.Usage} {
		err := &storage.ServiceError{Kind: kind, Text: "the service", Hint: "start it", Err: syscall.ECONNREFUSED}
		if p := Explain(fmt.Errorf("store source: %w", err)); p.Kind != want || p.Text != "the service" || p.Hint != "start it" {
			t.Errorf("%s: %+v", kind, p)
		}
	}
}

func TestExplain_TreatsInvalidSubmissionsAsUsage(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		fmt.Errorf("submit: %w: %w", store.ErrInvalid,
			&pgconn.PgError{Code: "22P02", Message: "no such number"}): "invalid submission: no such number",
		fmt.Errorf("submit: %w: no source", store.ErrInvalid): "submit: invalid submission: no source",
	} {
		if p := Explain(err); p.Kind != usererr.Usage || p.Text != want {
			t.Errorf("exit code %d, %s; want %s", p.Kind, p.Text, want)
		}
	}
}
