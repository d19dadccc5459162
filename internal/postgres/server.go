package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// turnWithin is how long Close waits for its turn: somebody else may be
// starting or stopping the server.
const turnWithin = time.Minute

// Server is a running server that this process uses. Its methods may be called
// from any goroutine.
type Server struct {
	options Options
	cluster *cluster
	in      *instance
	users   *os.File // holds the shared lock

	closing chan struct{} // tells watch to end
	watched chan struct{} // closed when it has
	done    chan struct{}
	err     error // written before done is closed
	close   func() error
}

func newServer(o Options, c *cluster, in *instance, users *os.File) *Server {
	s := &Server{
		options: o, cluster: c, in: in, users: users,
		closing: make(chan struct{}), watched: make(chan struct{}), done: make(chan struct{}),
	}
	s.close = sync.OnceValue(s.leave)
	go s.watch()
	return s
}

// URL is the address of the database, for pgx and for psql.
func (s *Server) URL() string { return s.in.url(s.options.Database) }

// Adopted reports whether another process had started the server.
func (s *Server) Adopted() bool { return !s.in.process.child }

// Dir is where the cluster and the server's log are: Options.Dir, unless the
// server could not have reached that.
func (s *Server) Dir() string { return s.cluster.home }

// Binaries is the installation that the cluster needs, for its other programs:
// psql, pg_dump.
func (s *Server) Binaries() Binaries { return s.cluster.bin }

// Done is closed when the server has ended although nobody here closed it.
// Close it then, and Start again if it is still needed: the database recovers.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says why, once Done is closed; nil before.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// watch waits for the server's end or ours.
func (s *Server) watch() {
	defer close(s.watched)
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-tick.C:
			s.boundLog()
		case <-s.in.process.ended:
			e := explain(s.cluster.logSince(s.in.logFrom))
			e.Problem = "the database server has ended: " + s.in.process.how
			s.err = e
			close(s.done)
			return
		}
	}
}

// boundLog keeps the log small. Whoever has a turn does it; a log that cannot
// be trimmed is no reason to disturb the server.
func (s *Server) boundLog() {
	turn, err := openLock(filepath.Join(s.options.Dir, lockName))
	if err != nil {
		return
	}
	defer turn.Close()
	if mine, err := tryLock(turn, lockExclusive); mine && err == nil {
		_ = s.cluster.trimLog(maxLog)
	}
}

// Close ends this process's use of the server and stops it if nobody else uses
// it: properly within half a minute, or else so that it recovers at its next
// start. It returns when the server has gone. Calling it again does nothing.
// Connections should be closed before; the server would cut them.
func (s *Server) Close() error { return s.close() }

func (s *Server) leave() error {
	close(s.closing)
	<-s.watched
	defer s.users.Close()

	ctx, cancel := context.WithTimeout(context.Background(), turnWithin)
	defer cancel()
	turn, err := openLock(filepath.Join(s.options.Dir, lockName))
	if err != nil {
		s.in.process.release()
		return fmt.Errorf("stop server: %w", err)
	}
	defer turn.Close()
	if err := lock(ctx, turn, lockExclusive); err != nil {
		s.in.process.release()
		if ctx.Err() != nil {
			return nil // whoever has the turn that long is starting the server, for itself
		}
		return fmt.Errorf("stop server: %w", err)
	}
	last, err := tryLock(s.users, lockExclusive)
	if !last || err != nil {
		s.in.process.release()
		return err
	}
	return s.stop(ctx)
}

// stop ends the server as its last user, whether it is still the one that was
// there at our start or, after that had crashed, one that somebody else started.
func (s *Server) stop(ctx context.Context) error {
	p := s.in.process
	select {
	case <-p.ended:
		l := &launch{cluster: s.cluster}
		in, err := l.adopt(ctx)
		if in == nil {
			return err
		}
		p = in.process
	default:
	}
	if p.stop() {
		// One outside our home has served its purpose, and goes if it is empty.
		if dir := s.in.socketDir; strings.HasPrefix(filepath.Base(dir), sharedPrefix) {
			_ = os.Remove(dir)
		}
		return nil
	}
	p.release()
	return &Error{
		Problem: fmt.Sprintf("stop server: process %d is still there %v after it was told to drop everything", p.handle.Pid, hardStop),
		Advice:  "its log is in " + s.cluster.home,
	}
}
