package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/flock"
)

// closeLockTimeout is how long Close waits for another process that is starting or
// stopping the server.
const closeLockTimeout = time.Minute

// Server is a running server that this process uses. Its methods may be called
// from several goroutines.
type Server struct {
	options Options
	cluster *cluster
	in      *instance
	users   *os.File // holds the shared lock

	closing chan struct{} // ends watch
	watched chan struct{} // closed when watch has ended
	done    chan struct{}
	err     error // written before done is closed
	close   func() error
}

func newServer(o Options, c *cluster, in *instance, users *os.File) *Server {
	s := &Server{
		options: o, cluster: c, in: in, users: users,
		closing: make(chan struct{}), watched: make(chan struct{}), done: make(chan struct{}),
	}
	s.close = sync.OnceValue(s.detach)
	go s.watch()
	return s
}

// URL is the address of the database for pgx and psql.
func (s *Server) URL() string { return s.in.url(databaseName) }

// Adopted reports whether another process started the server.
func (s *Server) Adopted() bool { return s.in.process.child == nil }

// Dir is the directory of the cluster and of the server's log: Options.Dir, unless
// the server's user cannot reach that.
func (s *Server) Dir() string { return s.cluster.home }

// Binaries is the installation that the cluster needs, also for psql and pg_dump.
func (s *Server) Binaries() Binaries { return s.cluster.bin }

// Done is closed when the server has ended before Close. Call Close then, and Start
// again if the server is still needed: the database recovers.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is the reason, once Done is closed; nil before.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// watch waits for the end of the server or for Close, and rotates the log.
func (s *Server) watch() {
	defer close(s.watched)
	tick := time.NewTicker(logCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-tick.C:
			s.limitLog()
		case <-s.in.process.ended:
			e := explain(s.cluster.logSince(s.in.logOffset))
			e.Text = "the database server has ended: " + s.in.process.exitReason()
			s.err = e
			close(s.done)
			return
		}
	}
}

// limitLog rotates the log if it is too large, unless another process holds the lock.
// A failure does not disturb the server.
func (s *Server) limitLog() {
	startStop, err := openLock(filepath.Join(s.options.Dir, lockName))
	if err != nil {
		return
	}
	defer startStop.Close()
	if taken, err := flock.TryLock(startStop, flock.Exclusive); taken && err == nil {
		_ = s.cluster.rotateLog(maxLogSize)
	}
}

// Close ends this process's use of the server. If no other process uses the server,
// Close stops it, and returns when it has ended: in good order within half a minute,
// and otherwise so that it recovers at its next start. Close the connections first;
// the server would end them. A second call does nothing.
func (s *Server) Close() error { return s.close() }

func (s *Server) detach() error {
	close(s.closing)
	<-s.watched
	defer s.users.Close()

	ctx, cancel := context.WithTimeout(context.Background(), closeLockTimeout)
	defer cancel()
	startStop, err := openLock(filepath.Join(s.options.Dir, lockName))
	if err != nil {
		s.in.process.release()
		return fmt.Errorf("stop server: %w", err)
	}
	defer startStop.Close()
	if err := flock.Lock(ctx, startStop, flock.Exclusive); err != nil {
		s.in.process.release()
		if ctx.Err() != nil {
			return nil // a process that takes so long is starting the server for itself
		}
		return fmt.Errorf("stop server: %w", err)
	}
	last, err := flock.TryLock(s.users, flock.Exclusive)
	if !last || err != nil {
		s.in.process.release()
		return err
	}
	return s.stop(ctx)
}

// stop stops the server as its last user: the server of this process's start, or,
// after that has crashed, the one that another process has started since.
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
		// A directory outside the home is no longer needed; Remove deletes only an
		// empty one.
		if dir := s.in.socketDir; strings.HasPrefix(filepath.Base(dir), sharedPrefix) {
			_ = os.Remove(dir)
		}
		return nil
	}
	p.release()
	return &Error{
		Text: fmt.Sprintf("stop server: process %d is still there %v after the signal for an immediate stop",
			p.pid(), immediateStopTimeout),
		Hint: "its log is in " + s.cluster.home,
	}
}
