package main

import (
	"context"
	"net"
	"sync"
)

// proxy is between one worker and its servers: the database, or the coordinators. A connection leads
// to the first one that accepts it, and each begins with the next one.
//
// While it holds data, nothing arrives: neither data nor the end of a connection. Afterwards it resets the
// connections, as a firewall does that has forgotten them, or lets them go on.
type proxy struct {
	servers    func() []string // addresses
	listener   net.Listener
	goroutines sync.WaitGroup

	mu       sync.Mutex // guards the rest
	conns    map[*proxyConn]bool
	released chan struct{} // closed while no data is held
	opened   int           // connections
	isClosed bool
}

func newProxy(servers func() []string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{servers: servers, listener: l, conns: make(map[*proxyConn]bool), released: make(chan struct{})}
	close(p.released)
	p.goroutines.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.goroutines.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// hold keeps all data until release.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = make(chan struct{})
}

// release lets data through again, of the connections that there are if they are not reset.
func (p *proxy) release(reset bool) {
	if reset {
		p.resetAll()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.released)
}

// resetAll closes all connections with a TCP reset.
func (p *proxy) resetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close(true)
	}
}

func (p *proxy) close() {
	_ = p.listener.Close() // only once
	p.resetAll()
	p.mu.Lock()
	p.isClosed = true
	p.mu.Unlock()
	p.goroutines.Wait()
}

// waitToPass waits until data is let through.
func (p *proxy) waitToPass(c *proxyConn) {
	p.mu.Lock()
	released := p.released
	p.mu.Unlock()
	select {
	case <-released:
	case <-c.closed:
	}
}

// proxyConn is one connection through a proxy.
type proxyConn struct {
	client, server net.Conn
	closed         chan struct{}
}

// serve connects to a server and copies until one end closes.
func (p *proxy) serve(client net.Conn) {
	c := &proxyConn{client: client, closed: make(chan struct{})}
	server, err := p.dial()
	p.mu.Lock()
	c.server = server
	p.conns[c] = true
	if err != nil || p.isClosed {
		c.close(true) // as if nobody listened
	}
	p.mu.Unlock()
	if err == nil {
		p.goroutines.Go(func() { p.copy(c, client, server) })
		p.copy(c, server, client)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// dial connects to a server.
func (p *proxy) dial() (server net.Conn, err error) {
	servers := p.servers()
	p.mu.Lock()
	first := p.opened
	p.opened++
	p.mu.Unlock()
	d := net.Dialer{Timeout: connectTimeout}
	for i := range servers {
		server, err = d.DialContext(context.Background(), "tcp", servers[(first+i)%len(servers)])
		if err == nil {
			return server, nil
		}
	}
	return nil, err
}

// close closes both sides, once, with a TCP reset if that is asked for. The caller holds the proxy's lock.
func (c *proxyConn) close(reset bool) {
	select {
	case <-c.closed:
		return
	default:
	}
	close(c.closed)
	for _, side := range []net.Conn{c.client, c.server} {
		if tcp, ok := side.(*net.TCPConn); ok {
			if reset {
				_ = tcp.SetLinger(0) // it may be closed already
			}
			tcp.Close()
		}
	}
}

// copy copies one direction until an end closes.
func (p *proxy) copy(c *proxyConn, to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		p.waitToPass(c)
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			p.mu.Lock()
			c.close(false)
			p.mu.Unlock()
			return
		}
	}
}
