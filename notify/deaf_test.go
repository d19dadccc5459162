package notify_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
)

// soon finds a deaf connection out quickly.
func soon() notify.Options {
	return notify.Options{CheckEvery: 50 * time.Millisecond, CheckWithin: 2 * time.Second}
}

// The listener goes through the proxy, its checks do not.
func listenThrough(t *testing.T) (*proxy, bundle) {
	t.Helper()
	return listenThroughWith(t, soon())
}

func listenThroughWith(t *testing.T, o notify.Options) (*proxy, bundle) {
	t.Helper()
	pool := pgtest.New(t, pgtest.Schema{})
	p, through := newProxy(t, pool)
	o.ConnConfig = through.Config().ConnConfig
	b := listen(t, pool, o)
	b.news()
	return p, b
}

// Connections whose other end is gone without a word, wholly or in one
// direction: nothing arrives, and nothing says so.
func TestDeafConnectionIsFoundOut(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*link){
		"half-open":     (*link).freeze,
		"to the client": func(k *link) { k.deaf.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := listenThrough(t)
			for range 2 {
				old := p.all()
				if len(old) != 1 {
					t.Fatalf("%d connections, want the listener's", len(old))
				}
				fail(old[0])
				b.back()
				waittest.Until(t, "the end of the old connection", old[0].gone.Load)
			}
			b.unchanged()
			if n := len(p.all()); n != 1 {
				t.Errorf("%d connections are left, want 1", n)
			}
			// Requests to cancel a statement would have come on their own.
			if n := p.opened.Load(); n != 3 {
				t.Errorf("%d connections were made, want 3", n)
			}
		})
	}
}

// The server never hears us, but we hear it: that is enough.
func TestConnectionThatIsDumbOnlyIsKept(t *testing.T) {
	t.Parallel()
	p, b := listenThrough(t)
	p.all()[0].dumb.Store(true)
	for range 3 {
		b.exec(`notify a`)
		b.news()
	}
	b.unchanged()
}

func TestUndoneListenIsFoundOut(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{`unlisten *`, `discard all`} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			p, b := listenThrough(t)
			p.all()[0].inject(t, sql)
			b.back()
			b.unchanged()
			if _, held := b.Session(); !held || len(b.pids()) != 1 {
				t.Error("the lock of the session is not back")
			}
		})
	}
}

func TestDoubtIsClearedUpAtOnce(t *testing.T) {
	t.Parallel()
	p, b := listenThroughWith(t, notify.Options{CheckEvery: time.Hour, CheckWithin: time.Second})
	b.Check()
	b.unchanged()
	p.all()[0].inject(t, `unlisten *`)
	// The first check may be answered before the server has undone the LISTEN.
	var asking sync.WaitGroup
	asked := make(chan struct{})
	asking.Go(func() {
		for tick := time.Tick(100 * time.Millisecond); ; {
			b.Check()
			select {
			case <-asked:
				return
			case <-tick:
			}
		}
	})
	b.back()
	close(asked)
	asking.Wait()
}

// Silence between the start of a session and the answer to LISTEN.
func TestConnectionThatNeverBeginsToHearIsFoundOut(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	p, through := newProxy(t, pool)
	p.silence.Store(1) // the next connection gets no answer to its LISTEN
	b := start(t, through, notify.Options{CheckEvery: 20 * time.Millisecond, CheckWithin: 200 * time.Millisecond})
	b.change(false)
	b.change(true)
}

// A session that somebody had before may listen to more, where a pooler does
// not clean up. What comes then is no end of the connection.
func TestNotificationsNobodyAskedForAreIgnored(t *testing.T) {
	t.Parallel()
	p, b := listenThrough(t)
	p.all()[0].inject(t, `listen other; notify a`)
	b.news() // which says that the rest is done as well
	for range 3 {
		b.exec(`notify other`)
		b.exec(`notify a`)
		if got := b.news(); len(got) != 1 || got[0] != "a" {
			t.Errorf("news is %v", got)
		}
	}
	if !b.Connected() {
		t.Error("it takes itself for deaf")
	}
	b.unchanged()
}
