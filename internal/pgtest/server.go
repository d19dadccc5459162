package pgtest

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
	c   *cluster
	dbs int
}

// StopMode is how a server is told to stop.
type StopMode syscall.Signal

// A server that stops Fast ends all sessions and writes everything down. One
// that stops with Immediate drops everything and recovers when it starts again.
const (
	Fast      = StopMode(syscall.SIGINT)
	Immediate = StopMode(syscall.SIGQUIT)
)

// NewServer starts a server for the test alone. It takes about a second: use
// [New] where an ordinary database will do.
func NewServer(t testing.TB, o ServerOptions) *Server {
	t.Helper()
	c, err := newCluster(o.Durable, o.Settings)
	if err != nil {
		unavailable(t, err)
	}
	s := &Server{t: t, c: c}
	t.Cleanup(func() {
		if err := c.release(""); err != nil {
			t.Errorf("stop server: %v", err)
		}
		if err := os.RemoveAll(c.dir); err != nil {
			t.Errorf("remove server: %v", err)
		}
	})
	s.Start()
	return s
}

// URL is the address of a database, for pgx and for psql, as the superuser. The
// database "postgres" is there from the beginning.
func (s *Server) URL(database string) string { return s.c.url(database) }

// New creates a database that holds schema and returns a pool of connections to
// it, which is closed at the end of the test. Unlike the function New it
// connects as the superuser.
func (s *Server) New(schema Schema) *pgxpool.Pool {
	s.t.Helper()
	s.dbs++
	name := fmt.Sprintf("test%d", s.dbs)
	s.exec("postgres", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create database "+name)
		return err
	})
	if schema.apply != nil {
		s.exec(name, schema.apply)
	}
	return open(s.t, s.URL(name))
}

func (s *Server) exec(database string, do func(context.Context, *pgx.Conn) error) {
	s.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		s.t.Fatalf("connect to %s: %v", database, err)
	}
	defer conn.Close(ctx)
	if err := do(ctx, conn); err != nil {
		s.t.Fatalf("prepare database %s: %v", database, err)
	}
}

// Start starts a stopped or killed server and returns when it answers.
func (s *Server) Start() {
	s.t.Helper()
	if s.c.keeper != nil {
		s.t.Fatal("the server runs already")
	}
	if err := s.c.start(); err != nil {
		s.t.Fatalf("start server: %v", err)
	}
}

// Stop stops the server and returns when all its processes are gone.
func (s *Server) Stop(mode StopMode) {
	s.t.Helper()
	s.end(syscall.Signal(mode))
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
	s.end(syscall.SIGKILL)
}

func (s *Server) end(sig syscall.Signal) {
	s.t.Helper()
	if s.c.keeper == nil {
		s.t.Fatal("the server does not run")
	}
	if err := s.c.signal(sig); err != nil {
		s.t.Fatalf("stop server: %v", err)
	}
	if !s.c.gone(stopWithin) {
		s.t.Fatalf("the server is still there %v after %v", stopWithin, sig)
	}
	if err := s.c.release("keep"); err != nil {
		s.t.Fatalf("stop server: %v", err)
	}
}

// SocketDir is the directory of the server's socket. Its file is there while the
// server accepts connections.
func (s *Server) SocketDir() string { return s.c.socketDir() }
