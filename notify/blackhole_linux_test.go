package notify_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/notify"
)

// island is a network of two addresses, ours and that of a namespace apart.
type island struct {
	t         testing.TB
	name      string // of the namespace
	link      string // its end of the cable
	here      string
	neighbour string
}

func newIsland(t testing.TB) island {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	n := os.Getpid()
	net := fmt.Sprintf("198.18.%d.", n>>6&255) // set aside for tests of networks
	i := island{
		t: t, name: fmt.Sprintf("cuelight-%d", n), link: fmt.Sprintf("clb%d", n),
		here: net + fmt.Sprint(n&63<<2+1), neighbour: net + fmt.Sprint(n&63<<2+2),
	}
	if out, err := exec.Command("ip", "netns", "add", i.name).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	near := fmt.Sprintf("cla%d", n)
	t.Cleanup(func() { i.ip("netns", "del", i.name) })
	if out, err := exec.Command("ip", "-n", i.name, "link").CombinedOutput(); err != nil {
		t.Skipf("network namespaces cannot be entered here: %s", out)
	}
	i.ip("link", "add", near, "type", "veth", "peer", "name", i.link, "netns", i.name)
	t.Cleanup(func() { i.ip("link", "del", near) })
	i.ip("addr", "add", i.here+"/30", "dev", near)
	i.ip("link", "set", near, "up")
	i.ip("-n", i.name, "addr", "add", i.neighbour+"/30", "dev", i.link)
	i.up()
	return i
}

func (i island) ip(args ...string) {
	i.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		i.t.Errorf("ip %s: %s", strings.Join(args, " "), out)
	}
}

// down makes the network a black hole: nothing arrives, and nothing says so.
func (i island) down() { i.ip("-n", i.name, "link", "set", i.link, "down") }
func (i island) up()   { i.ip("-n", i.name, "link", "set", i.link, "up") }

// server starts one that is reached from the namespace.
func (i island) server(t *testing.T) *postgres.Ephemeral {
	t.Helper()
	return newServer(t, postgres.EphemeralOptions{Listen: []string{i.here}, Trust: []string{i.neighbour + "/32"}})
}

// dial makes a socket in the namespace, where it stays.
func (i island) dial(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	made := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		ns, err := os.Open("/run/netns/" + i.name)
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			made <- result{nil, err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		made <- result{conn, err}
	}()
	r := <-made
	return r.conn, r.err
}

// A machine that loses its network says no farewell. Its sessions, and with
// them their locks, are there for as long as it may go on working, and then they
// end, whether the server had something for it or not; without our settings
// that would take hours.
func TestSessionOfALostMachineLastsAsLongAsItsLeaseAndThenEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const keep = 12 * time.Second
	t.Parallel()
	i := newIsland(t)
	s := i.server(t)
	pool := connect(t, s.URL("postgres"))
	far, err := pgx.ParseConfig(postgres.TCPURL("postgres", s.Addr()))
	must(t, err)
	far.ConnectTimeout = time.Second
	far.DialFunc = i.dial
	listener := func(channel string) bundle {
		b := listen(t, pool, notify.Options{Channels: []string{channel}, ConnConfig: far, CheckEvery: time.Hour, Keep: keep})
		b.news()
		return b
	}
	idle, busy := listener("idle"), listener("busy")
	careless, err := pgx.ConnectConfig(t.Context(), far)
	must(t, err)
	defer careless.Close(context.Background())

	i.down()
	began := time.Now()
	busy.exec(`notify busy`) // nobody will acknowledge it
	for name, b := range map[string]bundle{"idle": idle, "busy": busy} {
		for len(b.pids()) > 0 {
			if time.Since(began) > keep+25*time.Second {
				t.Fatalf("the session of the %s listener is still there", name)
			}
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(began)
		t.Logf("the session of the %s listener ended after %.1f s", name, took.Seconds())
		if took < keep {
			t.Errorf("the session of the %s listener ended after %s", name, took)
		}
	}
	var there bool
	err = pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity where pid = $1)`, careless.PgConn().PID()).Scan(&there)
	if err != nil || !there {
		t.Errorf("a session without our settings has ended as well (%v): this test proves nothing", err)
	}

	// The other end has noticed by then, or does so now.
	idle.change(false)
	busy.change(false)
	i.up()
	idle.change(true)
	busy.change(true)
}
