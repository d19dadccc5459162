package notify_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
)

// fastChecks are options that detect a broken connection quickly.
func fastChecks() notify.Options {
	return notify.Options{CheckInterval: 50 * time.Millisecond, CheckTimeout: 2 * time.Second}
}

// listenThrough starts a listener through a proxy. Its checks do not use the proxy.
func listenThrough(t *testing.T) (*proxy, bundle) {
	t.Helper()
	return listenThroughWith(t, fastChecks())
}

func listenThroughWith(t *testing.T, o notify.Options) (*proxy, bundle) {
	t.Helper()
	pool := pgtest.New(t, pgtest.Schema{})
	p, through := newProxy(t, pool)
	o.ConnConfig = through.Config().ConnConfig
	b := listen(t, pool, o)
	b.takeWakes()
	return p, b
}

// The connection drops all data, in both directions or in one, without an error.
func TestCheck_DetectsABrokenConnection(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*proxiedConn){
		"half-open":     (*proxiedConn).freeze,
		"to the client": func(k *proxiedConn) { k.dropToClient.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := listenThrough(t)
			for range 2 {
				old := p.openConns()
				if len(old) != 1 {
					t.Fatalf("%d connections, want the listener's", len(old))
				}
				fail(old[0])
				b.wantReconnect()
				waittest.Until(t, "the old connection is closed", old[0].closed.Load)
			}
			b.wantNoChange()
			if n := len(p.openConns()); n != 1 {
				t.Errorf("%d connections are left, want 1", n)
			}
			// Cancel requests would have used connections of their own.
			if n := p.opened.Load(); n != 3 {
				t.Errorf("%d connections were made, want 3", n)
			}
		})
	}
}

// A connection that only loses data to the server still receives notifications.
func TestCheck_KeepsAConnectionThatStillReceives(t *testing.T) {
	t.Parallel()
	p, b := listenThrough(t)
	p.openConns()[0].dropToServer.Store(true)
	for range 3 {
		b.exec(`notify a`)
		b.takeWakes()
	}
	b.wantNoChange()
}

func TestCheck_DetectsUnlisten(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{`unlisten *`, `discard all`} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			p, b := listenThrough(t)
			p.openConns()[0].inject(t, sql)
			b.wantReconnect()
			b.wantNoChange()
			if _, held := b.Session(); !held || len(b.lockHolders()) != 1 {
				t.Error("the new session does not hold the lock")
			}
		})
	}
}

func TestCheck_RunsAtOnce(t *testing.T) {
	t.Parallel()
	p, b := listenThroughWith(t, notify.Options{CheckInterval: time.Hour, CheckTimeout: time.Second})
	b.Check()
	b.wantNoChange()
	p.openConns()[0].inject(t, `unlisten *`)
	// The first check may succeed before the server has run the UNLISTEN.
	var checking sync.WaitGroup
	detected := make(chan struct{})
	checking.Go(func() {
		for tick := time.Tick(100 * time.Millisecond); ; {
			b.Check()
			select {
			case <-detected:
				return
			case <-tick:
			}
		}
	})
	b.wantReconnect()
	close(detected)
	checking.Wait()
}

// The server stops answering between the start of the session and LISTEN.
func TestConnect_TimesOutWithoutAnAnswerToListen(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	p, through := newProxy(t, pool)
	p.freezeAtListen.Store(1) // the next connection gets no answer to its LISTEN
	b := start(t, through, notify.Options{CheckInterval: 20 * time.Millisecond, CheckTimeout: 200 * time.Millisecond})
	b.wantChange(false)
	b.wantChange(true)
}

// Where a pooler does not reset sessions, one that another client used before may listen
// to more channels. Their notifications must not end the connection.
func TestListener_IgnoresOtherChannels(t *testing.T) {
	t.Parallel()
	p, b := listenThrough(t)
	p.openConns()[0].inject(t, `listen other; notify a`)
	b.takeWakes() // LISTEN has run before
	for range 3 {
		b.exec(`notify other`)
		b.exec(`notify a`)
		if got := b.takeWakes(); len(got) != 1 || got[0] != "a" {
			t.Errorf("woken channels are %v", got)
		}
	}
	if !b.Connected() {
		t.Error("the listener is not connected")
	}
	b.wantNoChange()
}
