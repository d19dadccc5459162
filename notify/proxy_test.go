package notify_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// proxy passes connections on to a server, and may stop without a word.
type proxy struct {
	dir     string       // of its socket
	target  string       // the server's socket
	opened  atomic.Int64 // how many connections were made
	silence atomic.Int64 // how many connections are to fall silent at their first LISTEN

	mu    sync.Mutex
	links []*link
}

// link is one connection through a proxy.
type link struct {
	client, server net.Conn
	// Whether what comes from there is swallowed.
	deaf, dumb atomic.Bool
	gone       atomic.Bool
}

// newProxy starts a proxy, and makes a pool whose connections lead through it.
func newProxy(t testing.TB, pool *pgxpool.Pool) (*proxy, *pgxpool.Pool) {
	t.Helper()
	p := &proxy{dir: t.TempDir(), target: filepath.Join(pool.Config().ConnConfig.Host, ".s.PGSQL.5432")}
	l, err := net.Listen("unix", filepath.Join(p.dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if k := p.open(client); k != nil {
				wg.Go(func() { k.pass(k.client, k.server, &k.deaf) })
				wg.Go(func() { k.pass(k.server, k.speech(p), &k.dumb) })
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		for _, k := range p.all() {
			k.close()
		}
		wg.Wait()
	})
	c := pool.Config()
	c.ConnConfig.Host = p.dir
	through, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	return p, through
}

func (p *proxy) open(client net.Conn) *link {
	p.opened.Add(1)
	server, err := net.Dial("unix", p.target)
	if err != nil {
		client.Close()
		return nil
	}
	k := &link{client: client, server: server}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, k)
	return k
}

// all are the connections that are open.
func (p *proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = slices.DeleteFunc(p.links, func(k *link) bool { return k.gone.Load() })
	return slices.Clone(p.links)
}

// speech is what the client says.
func (k *link) speech(p *proxy) io.Reader {
	return reader(func(b []byte) (int, error) {
		n, err := k.client.Read(b)
		if bytes.Contains(b[:n], []byte("listen \"")) && p.silence.Add(-1) >= 0 {
			k.freeze()
		}
		return n, err
	})
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// pass copies until an end closes, and then closes the other, unless it has
// fallen silent.
func (k *link) pass(to io.Writer, from io.Reader, swallow *atomic.Bool) {
	defer k.close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if swallow.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (k *link) close() {
	k.gone.Store(true)
	k.client.Close()
	k.server.Close()
}

// freeze swallows everything from now on, in both directions.
func (k *link) freeze() {
	k.deaf.Store(true)
	k.dumb.Store(true)
}

// inject says something to the server as if it came from the client, for which
// an answer out of turn is no news.
func (k *link) inject(t testing.TB, sql string) {
	t.Helper()
	m := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(sql)+1))
	if _, err := k.server.Write(append(append(m, sql...), 0)); err != nil {
		t.Fatal(err)
	}
}
