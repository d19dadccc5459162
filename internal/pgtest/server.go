package pgtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ServerOptions say what kind of server a test needs.
type ServerOptions struct {
	// Durable makes the server wait for the disk as a production server does, so
	// that acknowledged commits survive Kill. Default: it does not.
	Durable bool

	// Settings are further lines of configuration, "name=value".
	Settings []string
}

// Server is the server of one test, which may stop, kill and restart it. Its methods
// fail the test on an error, so they must be called from the test's goroutine. The
// server ends with the test, and its data are removed.
type Server struct {
	t   testing.TB
	s   *Ephemeral
	dbs int
}

// NewServer starts a server for the test alone, which takes about a second. A test that
// only needs a database uses [New].
func NewServer(t testing.TB, o ServerOptions) *Server {
	t.Helper()
	s, err := StartEphemeral(context.Background(), EphemeralOptions{
		Durable: o.Durable, Settings: o.Settings,
	})
	if err != nil {
		skipOrFail(t, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
	})
	return &Server{t: t, s: s}
}

// Standby starts a second server that replicates this one, which must be durable. It ends with the test.
func (s *Server) Standby() *Server {
	s.t.Helper()
	standby, err := s.s.Standby(context.Background(), "standby")
	s.must(err)
	s.t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			s.t.Errorf("close standby: %v", err)
		}
	})
	return &Server{t: s.t, s: standby}
}

// Promote makes a standby a primary.
func (s *Server) Promote() {
	s.t.Helper()
	s.must(s.s.Promote(context.Background()))
}

// Pool returns a pool of connections to a database of the server, which is closed at the end of the test.
func (s *Server) Pool(database string) *pgxpool.Pool { return open(s.t, s.URL(database)) }

// URL is the address of a database for pgx and psql, as the superuser. The database
// "postgres" always exists.
func (s *Server) URL(database string) string { return s.s.URL(database) }

// SocketDir is the directory of the server's socket. The socket is there while the
// server accepts connections.
func (s *Server) SocketDir() string { return s.s.SocketDir() }

// New creates a database with the schema and returns a pool of connections to it, which
// is closed at the end of the test. Unlike the function New it connects as the
// superuser.
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
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	s.must(s.s.Stop(ctx, mode))
}

// Restart is Stop and Start.
func (s *Server) Restart(mode StopMode) {
	s.t.Helper()
	s.Stop(mode)
	s.Start()
}

// Kill kills the server, as a crash would, and returns when all its processes are gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.must(s.s.Kill())
}
