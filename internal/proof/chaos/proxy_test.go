package main

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// startEchoServer starts a server that sends back what it receives.
func startEchoServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// startEchoServers returns the addresses of some echo servers.
func startEchoServers(t *testing.T, n int) (addrs func() []string) {
	t.Helper()
	var all []string
	for range n {
		all = append(all, startEchoServer(t))
	}
	return func() []string { return all }
}

type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, addr string) client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return client{t, c}
}

func (c client) send(text string) {
	c.t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c client) receives(text string) {
	c.t.Helper()
	got := make([]byte, len(text))
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		c.t.Fatalf("received %q, %v; want %q", got, err, text)
	}
}

// isReset waits for the reset of the connection. No data may arrive before it.
func (c client) isReset() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("received %d bytes, %v", n, err)
	}
}

func (c client) receivesNothing() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
		c.t.Fatalf("received %d bytes, %v", n, err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func startProxy(t *testing.T) *proxy {
	t.Helper()
	p, err := newProxy(startEchoServers(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

func TestProxy_HoldsDataAndResetsConnections(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	c := dial(t, p.addr())
	c.send("a")
	c.receives("a")
	p.hold()
	c.send("b")
	c.receivesNothing()
	late := dial(t, p.addr())
	late.send("b")
	late.receivesNothing()
	p.release(true)
	c.isReset()
	late.isReset()
	again := dial(t, p.addr())
	again.send("c")
	again.receives("c")
}

func TestProxy_DeliversHeldDataAfterwards(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	c := dial(t, p.addr())
	p.hold()
	c.send("a")
	c.receivesNothing()
	p.release(false)
	c.receives("a")
}

func TestProxy_HidesTheEndOfAConnectionWhileItHoldsData(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := newProxy(func() []string { return []string{l.Addr().String()} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	c := dial(t, p.addr())
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	p.hold()
	c.Close()
	client{t, accepted}.receivesNothing()
	p.release(true)
	client{t, accepted}.isReset()
}

func TestProxy_CloseEndsAllConnections(t *testing.T) {
	t.Parallel()
	for _, isHeld := range []bool{false, true} {
		p, err := newProxy(startEchoServers(t, 1))
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, p.addr())
		c.send("a")
		c.receives("a")
		if isHeld {
			p.hold()
		}
		c.send("b")
		p.close() // returns when all its goroutines have
	}
}

func TestProxy_ConnectsToAServerThatListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	alive := startEchoServer(t)
	p, err := newProxy(func() []string { return []string{l.Addr().String(), alive} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	for range 4 {
		c := dial(t, p.addr())
		c.send("hello")
		c.receives("hello")
	}
}

func TestProxy_SpreadsConnectionsOverItsServers(t *testing.T) {
	t.Parallel()
	addrs := startEchoServers(t, 2)
	p, err := newProxy(addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	servers := make(map[string]bool)
	for range 2 {
		c, err := p.dial()
		if err != nil {
			t.Fatal(err)
		}
		servers[c.RemoteAddr().String()] = true
		c.Close()
	}
	if len(servers) != 2 {
		t.Errorf("two connections lead to %v", servers)
	}
}
