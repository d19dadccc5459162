package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// proxyMode says what a proxy does with the data of its connections.
type proxyMode struct {
	refuse       bool          // nobody listens
	dropToServer bool          // what the worker sends is dropped
	dropToClient bool          // what the server sends is dropped
	hold         bool          // all data waits until the mode changes
	delay        time.Duration // all data is late
}

// proxy is between one worker and its servers: the database, or the coordinators. A connection leads
// to the first one that accepts it, and each begins with the next one.
//
// Dropped data is lost. When the mode changes, the proxy resets the connections that lost data, as
// a firewall does that has forgotten them. Until then neither side notices when the other closes.
type proxy struct {
	servers    func() []string // addresses
	addr       string
	goroutines sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    map[*proxyConn]bool
	mode     proxyMode
	changed  chan struct{} // closed when the mode changes
	isClosed bool
	opened   int // connections
}

func newProxy(servers func() []string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		servers: servers, addr: l.Addr().String(), conns: make(map[*proxyConn]bool), changed: make(chan struct{}),
	}
	p.accept(l)
	return p, nil
}

func (p *proxy) accept(l net.Listener) {
	p.listener = l
	p.goroutines.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.open(client)
		}
	})
}

// open connects a client to the server, unless all data is dropped.
func (p *proxy) open(client net.Conn) {
	c := &proxyConn{proxy: p, client: client}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed {
		client.Close()
		return
	}
	p.conns[c] = true
	if p.mode.dropToServer && p.mode.dropToClient {
		c.lostToServer = true
		p.goroutines.Go(func() { c.copy(nil, client) })
		return
	}
	p.goroutines.Go(c.run)
}

// set changes the mode. It resets connections that lost data; those that were only held go on.
func (p *proxy) set(m proxyMode) error {
	p.mu.Lock()
	previous := p.mode
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.resetIf(func(c *proxyConn) bool { return c.lostToServer || c.lostToClient })
	switch {
	case m.refuse && !previous.refuse:
		return p.listener.Close()
	case !m.refuse && previous.refuse:
		l, err := net.Listen("tcp", p.addr)
		if err != nil {
			return err
		}
		p.accept(l)
	}
	return nil
}

func (p *proxy) resetAll() { p.resetIf(func(*proxyConn) bool { return true }) }

func (p *proxy) resetIf(matches func(*proxyConn) bool) {
	p.mu.Lock()
	var matching []*proxyConn
	for c := range p.conns {
		if matches(c) {
			matching = append(matching, c)
		}
	}
	p.mu.Unlock()
	for _, c := range matching {
		c.close(true)
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.isClosed = true
	p.mu.Unlock()
	_ = p.set(proxyMode{refuse: true}) // the listener closes, or is closed already
	p.resetAll()
	p.goroutines.Wait()
}

// proxyConn is one connection through a proxy. The proxy's lock protects its fields.
type proxyConn struct {
	proxy                      *proxy
	client, server             net.Conn
	lostToServer, lostToClient bool // data was dropped in this direction
	isClosed                   bool
}

// run connects to the server and copies until one end closes.
func (c *proxyConn) run() {
	server, err := c.proxy.dial()
	if err != nil {
		c.close(true) // as if nobody listened
		return
	}
	if !c.setServer(server) {
		return
	}
	c.proxy.goroutines.Go(func() { c.copy(c.client, server) })
	c.copy(server, c.client)
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

// setServer stores the connection to the server, unless the client's is closed already.
func (c *proxyConn) setServer(server net.Conn) bool {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	if c.isClosed {
		server.Close()
		return false
	}
	c.server = server
	return true
}

// close closes both sides, with a TCP reset if that is asked for.
func (c *proxyConn) close(reset bool) {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.isClosed = true
	delete(c.proxy.conns, c)
	for _, side := range []net.Conn{c.client, c.server} {
		if tcp, ok := side.(*net.TCPConn); ok {
			if reset {
				_ = tcp.SetLinger(0) // it may be closed already
			}
			tcp.Close()
		}
	}
}

// copy copies one direction until an end closes. While data is dropped it does not pass that on.
func (c *proxyConn) copy(to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		passes := c.waitToPass(from == c.client)
		switch {
		case !passes && err != nil:
			return
		case !passes:
			continue
		case err == nil:
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			c.close(false)
			return
		}
	}
}

// waitToPass waits as the mode says, and reports whether to pass on what was read.
func (c *proxyConn) waitToPass(toServer bool) bool {
	for {
		p := c.proxy
		p.mu.Lock()
		m, changed, isClosed := p.mode, p.changed, c.isClosed
		lost, drop := &c.lostToClient, m.dropToClient
		if toServer {
			lost, drop = &c.lostToServer, m.dropToServer
		}
		*lost = *lost || drop
		isLost := *lost
		p.mu.Unlock()
		switch {
		case isClosed:
			return true // the write finds both ends closed
		case isLost:
			return false
		case m.hold:
			<-changed
			continue
		case m.delay == 0:
			return true
		}
		timer := time.NewTimer(m.delay)
		select {
		case <-timer.C:
			return true
		case <-changed:
			timer.Stop()
		}
	}
}
