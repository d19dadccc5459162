package web

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// lookFor is how often it is looked which clients of streams are gone.
const lookFor = time.Second

// gone looks for clients that are gone. They have nothing more to say, so whatever
// could be read of a connection is its end. One goroutine asks that of all of them: one
// for each that waits in a read was a quarter of what a stream has in memory.
type gone struct {
	mu      sync.Mutex
	tell    map[syscall.RawConn]context.CancelFunc
	looking bool
}

// watch calls tell when the client of conn is gone, unless stop is called before.
func (s *Server) watch(conn net.Conn, tell context.CancelFunc) (stop func()) {
	raw := rawOf(conn)
	if raw == nil {
		s.underWay.Add(1)
		go func() {
			defer s.underWay.Add(-1)
			_, _ = conn.Read(make([]byte, 1))
			tell()
		}()
		return func() {} // the connection's end is that of the read
	}
	g := &s.gone
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tell == nil {
		g.tell = make(map[syscall.RawConn]context.CancelFunc)
	}
	g.tell[raw] = tell
	if !g.looking {
		g.looking = true
		s.underWay.Add(1)
		go func() {
			defer s.underWay.Add(-1)
			g.look(s.live)
		}()
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.tell, raw)
	}
}

// rawOf is the connection that carries conn, or nil if that is none of the system's.
func rawOf(conn net.Conn) syscall.RawConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// look looks while there is one to be watched.
func (g *gone) look(live context.Context) {
	again := time.NewTicker(lookFor)
	defer again.Stop()
	for g.any() {
		select {
		case <-again.C:
		case <-live.Done(): // which ends all of them
			return
		}
	}
}

// any tells of those that are gone, and reports whether there are others to be watched.
func (g *gone) any() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for raw, tell := range g.tell {
		if readable(raw) {
			tell()
			delete(g.tell, raw)
		}
	}
	g.looking = len(g.tell) > 0
	return g.looking
}

// readable reports whether there is anything to be read, without waiting for it.
func readable(raw syscall.RawConn) bool {
	var seen error
	err := raw.Read(func(fd uintptr) bool {
		_, _, seen = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err != nil || !errors.Is(seen, syscall.EAGAIN) && !errors.Is(seen, syscall.EINTR)
}
