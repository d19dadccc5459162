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

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
)

// remoteNetwork is a network of two addresses: this host's, and one in a network
// namespace.
type remoteNetwork struct {
	t             testing.TB
	name          string // of the namespace
	link          string // the namespace's end of the virtual cable
	localAddress  string
	remoteAddress string
}

func newRemoteNetwork(t testing.TB) remoteNetwork {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	n := os.Getpid()
	net := fmt.Sprintf("198.18.%d.", n>>6&255) // reserved for network tests
	i := remoteNetwork{
		t: t, name: fmt.Sprintf("cuelight-%d", n), link: fmt.Sprintf("clb%d", n),
		localAddress: net + fmt.Sprint(n&63<<2+1), remoteAddress: net + fmt.Sprint(n&63<<2+2),
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
	i.ip("addr", "add", i.localAddress+"/30", "dev", near)
	i.ip("link", "set", near, "up")
	i.ip("-n", i.name, "addr", "add", i.remoteAddress+"/30", "dev", i.link)
	i.up()
	return i
}

func (i remoteNetwork) ip(args ...string) {
	i.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		i.t.Errorf("ip %s: %s", strings.Join(args, " "), out)
	}
}

// down makes the network drop all packets without an error.
func (i remoteNetwork) down() { i.ip("-n", i.name, "link", "set", i.link, "down") }
func (i remoteNetwork) up()   { i.ip("-n", i.name, "link", "set", i.link, "up") }

// server starts a server that can be reached from the namespace.
func (i remoteNetwork) server(t *testing.T) *pgtest.Ephemeral {
	t.Helper()
	return newServer(t, pgtest.EphemeralOptions{
		Listen: []string{i.localAddress}, Trust: []string{i.remoteAddress + "/32"},
	})
}

// dial connects from the namespace.
func (i remoteNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
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

// A host that loses its network closes no connection. Its sessions and their locks last
// as long as its worker may continue, and then end, whether the server has data to send
// or not. Without the Listener's settings they would last for hours.
func TestSession_OfALostHostEndsAfterItsLease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const keep = 12 * time.Second
	t.Parallel()
	i := newRemoteNetwork(t)
	s := i.server(t)
	pool := connect(t, s.URL("postgres"))
	far, err := pgx.ParseConfig(pgtest.TCPURL("postgres", s.Addr()))
	must(t, err)
	far.ConnectTimeout = time.Second
	far.DialFunc = i.dial
	listener := func(channel string) bundle {
		b := listen(t, pool, notify.Options{
			Channels: []string{channel}, ConnConfig: far, CheckInterval: time.Hour, KeepSession: keep,
		})
		b.takeWakes()
		return b
	}
	idle, busy := listener("idle"), listener("busy")
	withoutSettings, err := pgx.ConnectConfig(t.Context(), far)
	must(t, err)
	defer withoutSettings.Close(context.Background())

	i.down()
	began := time.Now()
	busy.exec(`notify busy`) // the notification cannot be acknowledged
	for name, b := range map[string]bundle{"idle": idle, "busy": busy} {
		waittest.Equal(t, "the number of sessions of the "+name+" listener", 0, func() int { return len(b.lockHolders()) })
		took := time.Since(began)
		t.Logf("the session of the %s listener ended after %.1f s", name, took.Seconds())
		if took < keep || took > keep+25*time.Second {
			t.Errorf("the session of the %s listener ended after %s", name, took)
		}
	}
	var exists bool
	err = pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity where pid = $1)`,
		withoutSettings.PgConn().PID()).Scan(&exists)
	if err != nil || !exists {
		t.Errorf("a session without the settings has ended as well: %v", err)
	}

	// The client detects the loss as well.
	idle.wantChange(false)
	busy.wantChange(false)
	i.up()
	idle.wantChange(true)
	busy.wantChange(true)
}
