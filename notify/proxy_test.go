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

// proxy forwards connections to a server, and can drop their data without an error.
type proxy struct {
	dir            string       // of its socket
	target         string       // the server's socket
	opened         atomic.Int64 // connections so far
	freezeAtListen atomic.Int64 // how many connections to freeze at their first LISTEN

	mu    sync.Mutex
	conns []*proxiedConn
}

// proxiedConn is one connection through a proxy.
type proxiedConn struct {
	client, server net.Conn
	// Whether the data in this direction is dropped.
	dropToClient, dropToServer atomic.Bool
	closed                     atomic.Bool
}

// newProxy starts a proxy, and returns a pool that connects through it.
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
				wg.Go(func() { k.copyData(k.client, k.server, &k.dropToClient) })
				wg.Go(func() { k.copyData(k.server, k.clientReader(p), &k.dropToServer) })
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		for _, k := range p.openConns() {
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

func (p *proxy) open(client net.Conn) *proxiedConn {
	p.opened.Add(1)
	server, err := net.Dial("unix", p.target)
	if err != nil {
		client.Close()
		return nil
	}
	k := &proxiedConn{client: client, server: server}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, k)
	return k
}

// openConns returns the open connections.
func (p *proxy) openConns() []*proxiedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(k *proxiedConn) bool { return k.closed.Load() })
	return slices.Clone(p.conns)
}

// clientReader reads what the client sends.
func (k *proxiedConn) clientReader(p *proxy) io.Reader {
	return readerFunc(func(b []byte) (int, error) {
		n, err := k.client.Read(b)
		if bytes.Contains(b[:n], []byte("listen \"")) && p.freezeAtListen.Add(-1) >= 0 {
			k.freeze()
		}
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (r readerFunc) Read(b []byte) (int, error) { return r(b) }

// copyData copies until one end closes, and then closes both. It drops the data while drop
// is set.
func (k *proxiedConn) copyData(to io.Writer, from io.Reader, drop *atomic.Bool) {
	defer k.close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if drop.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (k *proxiedConn) close() {
	k.closed.Store(true)
	k.client.Close()
	k.server.Close()
}

// freeze drops all data from now on, in both directions.
func (k *proxiedConn) freeze() {
	k.dropToClient.Store(true)
	k.dropToServer.Store(true)
}

// inject sends SQL to the server as if it came from the client, which ignores the
// unexpected answer.
func (k *proxiedConn) inject(t testing.TB, sql string) {
	t.Helper()
	m := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+len(sql)+1))
	if _, err := k.server.Write(append(append(m, sql...), 0)); err != nil {
		t.Fatal(err)
	}
}
