package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// mode is how a proxy treats what passes.
type mode struct {
	refuse   bool          // nobody listens
	toServer bool          // what the worker says is swallowed
	toClient bool          // what the server says is swallowed
	hold     bool          // everything waits until the mode changes
	delay    time.Duration // everything is late by so much
}

// proxy is between one worker and the server.
//
// What was swallowed is gone: when the mode changes, connections of which a part
// was swallowed are reset, as they are by a firewall that has forgotten them. Until
// then neither side hears of the other's end.
type proxy struct {
	server string
	addr   string
	all    sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	links    map[*passage]bool
	mode     mode
	changed  chan struct{} // closed with every change of the mode
	closed   bool
}

func newProxy(server string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{server: server, addr: l.Addr().String(), links: make(map[*passage]bool), changed: make(chan struct{})}
	p.accept(l)
	return p, nil
}

func (p *proxy) accept(l net.Listener) {
	p.listener = l
	p.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.open(client)
		}
	})
}

// open connects a client through, unless nothing gets through.
func (p *proxy) open(client net.Conn) {
	k := &passage{proxy: p, client: client}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		client.Close()
		return
	}
	p.links[k] = true
	if p.mode.toServer && p.mode.toClient {
		k.lostUp = true
		p.all.Go(func() { k.pass(nil, client) })
		return
	}
	p.all.Go(k.through)
}

// through connects to the server and passes on until an end closes.
func (k *passage) through() {
	d := net.Dialer{Timeout: connectWithin}
	server, err := d.DialContext(context.Background(), "tcp", k.proxy.server)
	if err != nil {
		k.end(false) // as if nobody listened
		return
	}
	if !k.have(server) {
		return
	}
	k.proxy.all.Go(func() { k.pass(k.client, server) })
	k.pass(server, k.client)
}

// set changes the mode. Connections that lost something to the one before are
// reset; those that are merely held go on.
func (p *proxy) set(m mode) error {
	p.mu.Lock()
	was := p.mode
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.resetWhere(func(k *passage) bool { return k.lostUp || k.lostDown })
	switch {
	case m.refuse && !was.refuse:
		return p.listener.Close()
	case !m.refuse && was.refuse:
		l, err := net.Listen("tcp", p.addr)
		if err != nil {
			return err
		}
		p.accept(l)
	}
	return nil
}

// cut resets all connections.
func (p *proxy) cut() { p.resetWhere(func(*passage) bool { return true }) }

func (p *proxy) resetWhere(which func(*passage) bool) {
	p.mu.Lock()
	var chosen []*passage
	for k := range p.links {
		if which(k) {
			chosen = append(chosen, k)
		}
	}
	p.mu.Unlock()
	for _, k := range chosen {
		k.end(false)
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.set(mode{refuse: true}) // the listener closes, or is closed already
	p.cut()
	p.all.Wait()
}

// passage is one connection through a proxy. Its fields belong to the proxy's
// lock.
type passage struct {
	proxy          *proxy
	client, server net.Conn
	lostUp         bool // something the client said was swallowed
	lostDown       bool // something the server said was
	gone           bool
}

// have takes in the connection to the server.
func (k *passage) have(server net.Conn) bool {
	k.proxy.mu.Lock()
	defer k.proxy.mu.Unlock()
	if k.gone {
		server.Close()
		return false
	}
	k.server = server
	return true
}

// end closes both sides: with a farewell, or without.
func (k *passage) end(farewell bool) {
	k.proxy.mu.Lock()
	defer k.proxy.mu.Unlock()
	k.gone = true
	delete(k.proxy.links, k)
	for _, c := range []net.Conn{k.client, k.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			if !farewell {
				_ = tcp.SetLinger(0) // it may be closed already
			}
			tcp.Close()
		}
	}
}

// pass copies one way until an end closes. Behind a black hole that is not
// passed on either.
func (k *passage) pass(to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		let := k.let(from == k.client)
		switch {
		case !let && err != nil:
			return
		case !let:
			continue
		case err == nil:
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			k.end(true)
			return
		}
	}
}

// let waits as the mode says, and reports whether what was read is passed on.
func (k *passage) let(up bool) bool {
	for {
		m, changed, verdict := k.look(up)
		switch verdict {
		case swallowed:
			return false
		case passed:
			return true
		}
		if m.hold {
			<-changed
			continue
		}
		late := time.NewTimer(m.delay)
		select {
		case <-late.C:
			return true
		case <-changed:
			late.Stop()
		}
	}
}

type verdict int

const (
	passed verdict = iota
	swallowed
	waits
)

func (k *passage) look(up bool) (mode, <-chan struct{}, verdict) {
	p := k.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	lost, swallow := &k.lostDown, p.mode.toClient
	if up {
		lost, swallow = &k.lostUp, p.mode.toServer
	}
	*lost = *lost || swallow
	switch {
	case k.gone:
		return p.mode, p.changed, passed // to find both ends closed
	case *lost:
		return p.mode, p.changed, swallowed
	case p.mode.hold, p.mode.delay > 0:
		return p.mode, p.changed, waits
	}
	return p.mode, p.changed, passed
}
