package notify_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
)

// A connection that a proxy refuses does not mean that the server is down.
func TestDirect_IsFalseBehindAProxy(t *testing.T) {
	t.Parallel()
	s := newServer(t, pgtest.EphemeralOptions{Listen: []string{"127.0.0.1"}})
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { relay.Close(); all.Wait() }) // after the listeners have ended
	all.Go(func() {
		for {
			client, err := relay.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.Addr())
			must(t, err)
			all.Go(func() { _, _ = io.Copy(server, client); server.Close() })
			all.Go(func() { _, _ = io.Copy(client, server); client.Close() })
		}
	})
	pool := connect(t, s.URL("postgres"))
	for address, want := range map[string]bool{
		s.URL("postgres"):                                true,
		pgtest.TCPURL("postgres", s.Addr()):              true,
		pgtest.TCPURL("postgres", relay.Addr().String()): false,
	} {
		cc, err := pgx.ParseConfig(address)
		must(t, err)
		l := notify.New(pool, notify.Options{Channels: []string{"a"}, ConnConfig: cc})
		if l.Direct() {
			t.Error("Direct is true before the first connection")
		}
		b := listen(t, pool, notify.Options{Channels: []string{"a"}, ConnConfig: cc})
		b.takeWakes()
		if b.Direct() != want {
			t.Errorf("%s: Direct is %t", address, b.Direct())
		}
	}
}
