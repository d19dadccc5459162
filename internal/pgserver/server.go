package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cuelight/cuelight/internal/postgres"
)

// Options say what kind of server to start. The zero value is one that is
// reached through its Unix socket alone and may lose everything when the
// machine stops.
type Options struct {
	// Durable makes the server wait for the disk as a production server does,
	// with the data on one. Default: it does not.
	Durable bool

	// Settings are further lines of configuration, "name=value". What
	// [Server.Set] says later goes over them.
	Settings []string

	// Listen are the IP addresses to listen on beside the Unix socket, such as
	// "127.0.0.1", all with the same port, which is chosen when the server is
	// made and stays. Default: none.
	Listen []string

	// Trust are the networks, such as "10.1.2.0/24", whose clients are let in.
	// Loopback and the addresses of Listen always are.
	Trust []string
}

// Server is a throw-away server and its data. Its methods may be called by
// several goroutines at once; those that start and stop it take turns.
type Server struct {
	bin     postgres.Binaries
	account postgres.Account
	opts    Options
	port    int

	dir     string   // holds data, s (for the socket) and log
	cleaner *process // removes dir when nobody needs it any more

	mu     sync.Mutex
	keeper *process // runs the server; nil: nobody does
	alive  *os.File // reads end of file when the last process of the server is gone
	frozen []int    // what Pause has stopped
}

// Start makes a server and returns when it answers, after a second or so. On a
// machine without PostgreSQL the error is [postgres.ErrNotInstalled]. When ctx
// is done before that the attempt is given up; afterwards ctx does not matter.
func Start(ctx context.Context, o Options) (*Server, error) {
	return create(ctx, o, func(s *Server) error {
		return s.bin.InitDB(ctx, s.account, s.data(), "--no-sync")
	})
}

// create is Start, with something that fills the data directory.
func create(ctx context.Context, o Options, fill func(*Server) error) (*Server, error) {
	bins, err := postgres.Find("")
	if err != nil {
		return nil, err
	}
	account, err := postgres.LookupAccount("")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bins[0], account: account, opts: o}
	if s.port, err = freePort(o.Listen); err != nil {
		return nil, fmt.Errorf("choose port: %w", err)
	}
	if err := s.settle(); err != nil {
		return nil, errors.Join(fmt.Errorf("make temporary directory: %w", err), s.Close())
	}
	for _, step := range []func() error{
		func() error { return fill(s) },
		s.configure,
		func() error { return s.Start(ctx) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// SocketDir is the directory of the server's socket. Its file is there while the
// server accepts connections.
func (s *Server) SocketDir() string { return filepath.Join(s.dir, "s") }

// Log is the file with the server's messages. It goes with the data.
func (s *Server) Log() string { return filepath.Join(s.dir, "log") }
