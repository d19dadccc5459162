package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgserver"
)

// ServerOptions are what a test may want of a server of its own.
type ServerOptions struct {
	// Durable makes the server wait for the disk as a production server does,
	// so that what it has acknowledged survives Kill. Default: it does not.
	Durable bool

	// Settings are further lines of configuration, "name=value".
	Settings []string
}

// Server is a server of one test, to be stopped, killed and started again. Its
// methods end the test when they do not succeed, so they must be called from
// the test's goroutine. It ends with the test, and its data with it.
type Server struct {
	t   testing.TB
	s   *pgserver.Server
	dbs int
}

// StopMode is how a server is told to stop.
type StopMode = pgserver.StopMode

// A server that stops Fast ends all sessions and writes everything down. One
// that stops with Immediate drops everything and recovers when it starts again.
const (
	Fast      = pgserver.Fast
	Immediate = pgserver.Immediate
)

// stopWithin bounds how long a server may take to go.
const stopWithin = time.Minute

// NewServer starts a server for the test alone. It takes about a second: use
// [New] where an ordinary database will do.
func NewServer(t testing.TB, o ServerOptions) *Server {
	t.Helper()
	s, err := pgserver.Start(context.Background(), pgserver.Options{Durable: o.Durable, Settings: o.Settings})
	if err != nil {
		unavailable(t, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
	})
	return &Server{t: t, s: s}
}

// URL is the address of a database, for pgx and for psql, as the superuser. The
// database "postgres" is there from the beginning.
func (s *Server) URL(database string) string { return s.s.URL(database) }

// SocketDir is the directory of the server's socket. Its file is there while the
// server accepts connections.
func (s *Server) SocketDir() string { return s.s.SocketDir() }

// New creates a database that holds schema and returns a pool of connections to
// it, which is closed at the end of the test. Unlike the function New it
// connects as the superuser.
func (s *Server) New(schema Schema) *pgxpool.Pool {
	s.t.Helper()
	s.dbs++
	name := fmt.Sprintf("test%d", s.dbs)
	s.must(s.s.CreateDatabase(context.Background(), name))
	if schema.apply != nil {
		s.must(prepare(s.URL(name), schema))
	}
	return open(s.t, s.URL(name))
}

func prepare(address string, schema Schema) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := schema.apply(ctx, conn); err != nil {
		return fmt.Errorf("prepare database: %w", err)
	}
	return nil
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Start starts a stopped or killed server and returns when it answers.
func (s *Server) Start() {
	s.t.Helper()
	s.must(s.s.Start(context.Background()))
}

// Stop stops the server and returns when all its processes are gone.
func (s *Server) Stop(mode StopMode) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	s.must(s.s.Stop(ctx, mode))
}

// Restart is Stop and Start.
func (s *Server) Restart(mode StopMode) {
	s.t.Helper()
	s.Stop(mode)
	s.Start()
}

// Kill ends the server as a crash would and returns when all its processes are
// gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.must(s.s.Kill())
}
