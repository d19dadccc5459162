package main

import (
	"net"
	"sync"
)

// severable is a listener whose connections can all be closed at once, for an end
// that waits for nobody.
type severable struct {
	net.Listener
	mu      sync.Mutex
	open    map[*severed]struct{}
	severed bool
}

func newSeverable(l net.Listener) *severable {
	return &severable{Listener: l, open: make(map[*severed]struct{})}
}

// severed is a connection. It is no other type, so that files are still sent by the
// kernel.
type severed struct {
	*net.TCPConn
	of *severable
}

// Accept waits for the next connection.
func (l *severable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	tcp, ok := c.(*net.TCPConn)
	if err != nil || !ok {
		return c, err
	}
	one := &severed{tcp, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.severed {
		_ = tcp.Close() // whoever reads from it will see
		return one, nil
	}
	l.open[one] = struct{}{}
	return one, nil
}

// Close closes the connection.
func (c *severed) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.TCPConn.Close()
}

// sever closes all connections, also those that are still to come.
func (l *severable) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.severed = true
	for c := range l.open {
		_ = c.TCPConn.Close()
	}
}

// severWhen severs when abort is closed, until the function that it returns is
// called.
func (l *severable) severWhen(abort <-chan struct{}) (stop func()) {
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-abort:
			l.sever()
		case <-ended:
		}
	})
	return func() { close(ended); watch.Wait() }
}
