package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// network is a namespace with one interface, whose other end is ours. It ends
// with the process that holds it, and that ends with us.
type network struct {
	holder     *process
	space, own *os.File
	ours       string // the interface at this end …
	theirs     string // … and at the other
	host, mask string
}

// newNetwork makes one. Where that is not allowed the error says so, and there
// is nothing else the matter.
func newNetwork(ctx context.Context) (_ *network, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root may make network namespaces")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleHolder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	// Addresses of 198.18.0.0/15 are for tests of networks, and nobody else's.
	part := os.Getpid() % (1 << 14)
	n := &network{
		ours: fmt.Sprintf("chaos%d", os.Getpid()), theirs: "chaos",
		host: fmt.Sprintf("198.18.%d.%d", part>>6, part&63<<2|1),
		mask: fmt.Sprintf("198.18.%d.%d/30", part>>6, part&63<<2),
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.holder, err = startProcess(cmd, here, func(string) {}); err != nil {
		return nil, err
	}
	if n.space, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", n.holder.pid())); err != nil {
		return nil, err
	}
	if n.own, err = os.Open("/proc/self/ns/net"); err != nil {
		return nil, err
	}
	if err = n.connect(ctx, fmt.Sprintf("198.18.%d.%d", part>>6, part&63<<2|2)); err != nil {
		return nil, err
	}
	return n, n.try()
}

// try finds out whether packets get through: a firewall may be in the way.
func (n *network) try() error {
	l, err := net.Listen("tcp", n.host+":0")
	if err != nil {
		return err
	}
	defer l.Close() // the kernel has accepted what nobody asks for
	return n.inside(func() error {
		// To an address it connects on the thread that asks.
		c, err := net.DialTimeout("tcp", l.Addr().String(), 3*time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func (n *network) connect(ctx context.Context, guest string) error {
	outside := []string{
		"link add " + n.ours + " type veth peer name " + n.theirs + " netns " + fmt.Sprint(n.holder.pid()),
		"address add " + n.host + "/30 dev " + n.ours,
		"link set " + n.ours + " up",
	}
	for _, words := range outside {
		if err := ip(ctx, words); err != nil {
			return err
		}
	}
	return n.inside(func() error {
		for _, words := range []string{"link set lo up", "address add " + guest + "/30 dev " + n.theirs, "link set " + n.theirs + " up"} {
			if err := ip(ctx, words); err != nil {
				return err
			}
		}
		return nil
	})
}

func ip(ctx context.Context, words string) error {
	if out, err := exec.CommandContext(ctx, "ip", strings.Fields(words)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", words, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// inside starts processes in the namespace. The thread that was there comes
// back, or ends.
func (n *network) inside(start func() error) error {
	runtime.LockOSThread()
	if err := unix.Setns(int(n.space.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err := start()
	if back := unix.Setns(int(n.own.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

// address is where a server that listens everywhere is to be found from inside.
func (n *network) address(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(n.host, port)
}

// set shuts the interface at the other end down, or starts it again. Ours stays,
// so that nothing finds another way.
func (n *network) set(ctx context.Context, up bool) error {
	state := " down"
	if up {
		state = " up"
	}
	return n.inside(func() error { return ip(ctx, "link set "+n.theirs+state) })
}

func (n *network) close() {
	if n.holder == nil {
		return
	}
	// The interface would end with the namespace, but some time later. It may
	// never have been made.
	_ = ip(context.Background(), "link delete "+n.ours)
	n.holder.end(connectWithin, nil)
	for _, f := range []*os.File{n.space, n.own} {
		if f != nil {
			f.Close()
		}
	}
}
