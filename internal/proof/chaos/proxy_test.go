package main

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echo is a server that says what it hears.
func echo(t *testing.T) string {
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

func (c client) say(word string) {
	c.t.Helper()
	if _, err := c.Write([]byte(word)); err != nil {
		c.t.Fatal(err)
	}
}

func (c client) hears(word string) {
	c.t.Helper()
	got := make([]byte, len(word))
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != word {
		c.t.Fatalf("heard %q, %v; want %q", got, err, word)
	}
}

// isReset waits for the connection's end, before which nothing may come.
func (c client) isReset() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("heard %d bytes and %v", n, err)
	}
}

func (c client) hearsNothing() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !isTimeout(err) {
		c.t.Fatalf("heard %d bytes and %v", n, err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func start(t *testing.T) *proxy {
	t.Helper()
	p, err := newProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

func set(t *testing.T, p *proxy, m mode) {
	t.Helper()
	if err := p.set(m); err != nil {
		t.Fatal(err)
	}
}

func TestABlackHoleSwallowsAndAConnectionThatLostSomethingIsReset(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mode{
		"both ways": {toServer: true, toClient: true},
		"deaf":      {toClient: true},
		"dumb":      {toServer: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			talks, silent := dial(t, p.addr), dial(t, p.addr)
			for _, c := range []client{talks, silent} {
				c.say("a")
				c.hears("a")
			}
			set(t, p, m)
			talks.say("b")
			talks.hearsNothing()
			late := dial(t, p.addr)
			late.say("b")
			late.hearsNothing()
			set(t, p, mode{})
			talks.isReset()
			late.isReset()
			silent.say("c")
			silent.hears("c")
		})
	}
}

func TestWhatIsHeldArrivesAfterwards(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p.addr)
	set(t, p, mode{hold: true})
	c.say("a")
	c.hearsNothing()
	set(t, p, mode{})
	c.hears("a")
}

func TestWhatIsDelayedArrivesLater(t *testing.T) {
	t.Parallel()
	p := start(t)
	set(t, p, mode{delay: 30 * time.Millisecond})
	c := dial(t, p.addr)
	began := time.Now()
	c.say("a")
	c.hears("a")
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Errorf("there and back took %v", took)
	}
}

func TestAProxyCutsAndRefusesAndComesBack(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p.addr)
	c.say("a")
	c.hears("a")
	set(t, p, mode{refuse: true})
	if other, err := net.Dial("tcp", p.addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, %v", other, err)
	}
	c.say("b")
	c.hears("b")
	set(t, p, mode{})
	p.cut()
	c.isReset()
	again := dial(t, p.addr)
	again.say("c")
	again.hears("c")
}

func TestTheEndOfAProxyIsTheEndOfItsConnections(t *testing.T) {
	t.Parallel()
	for _, m := range []mode{{}, {toServer: true, toClient: true}, {hold: true}, {delay: time.Hour}, {refuse: true}} {
		p, err := newProxy(echo(t))
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, p.addr)
		c.say("a")
		c.hears("a")
		set(t, p, m)
		c.say("b")
		p.close() // returns when all its goroutines have
	}
}
