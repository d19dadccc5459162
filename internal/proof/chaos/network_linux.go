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

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// networkNamespace is a namespace with one network interface, whose peer is in this program's
// namespace. A child process holds it. It ends with that process, which ends with this one.
type networkNamespace struct {
	holder      *proofkit.Child
	target, own *os.File // the two namespaces
	hostLink    string   // the interface at this end …
	guestLink   string   // … and at the other
	hostIP      string
	subnet      string
}

// newNetworkNamespace creates a namespace. Where that is not allowed, the error says why.
func newNetworkNamespace(ctx context.Context) (_ *networkNamespace, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root may create network namespaces")
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleNamespaceHolder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	// The addresses of 198.18.0.0/15 are reserved for tests of networks.
	block := os.Getpid() % (1 << 14)
	address := func(last int) string { return fmt.Sprintf("198.18.%d.%d", block>>6, block&63<<2|last) }
	n := &networkNamespace{
		hostLink: fmt.Sprintf("chaos%d", os.Getpid()), guestLink: "chaos",
		hostIP: address(1), subnet: address(0) + "/30",
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.holder, err = proofkit.StartChild(cmd, proofkit.ChildOptions{}); err != nil {
		return nil, err
	}
	if n.target, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", n.holder.PID())); err != nil {
		return nil, err
	}
	if n.own, err = os.Open("/proc/self/ns/net"); err != nil {
		return nil, err
	}
	if err = n.configure(ctx, address(2)); err != nil {
		return nil, err
	}
	return n, n.checkConnection()
}

// checkConnection checks that packets get through: a firewall may be in the way.
func (n *networkNamespace) checkConnection() error {
	l, err := net.Listen("tcp", n.hostIP+":0")
	if err != nil {
		return err
	}
	defer l.Close() // the kernel accepts the connection
	return n.enter(func() error {
		// Dial connects to an IP address on the calling thread.
		c, err := net.DialTimeout("tcp", l.Addr().String(), 3*time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func (n *networkNamespace) configure(ctx context.Context, guestIP string) error {
	err := ip(ctx,
		"link add "+n.hostLink+" type veth peer name "+n.guestLink+" netns "+fmt.Sprint(n.holder.PID()),
		"address add "+n.hostIP+"/30 dev "+n.hostLink,
		"link set "+n.hostLink+" up")
	if err != nil {
		return err
	}
	return n.enter(func() error {
		return ip(ctx, "link set lo up", "address add "+guestIP+"/30 dev "+n.guestLink, "link set "+n.guestLink+" up")
	})
}

// ip runs the command ip with the arguments of each line.
func ip(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// enter calls do on a thread in the namespace. A thread that cannot leave it ends with its goroutine.
func (n *networkNamespace) enter(do func() error) error {
	runtime.LockOSThread()
	if err := unix.Setns(int(n.target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err := do()
	if leaveErr := unix.Setns(int(n.own.Fd()), unix.CLONE_NEWNET); leaveErr != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace: %w", leaveErr))
	}
	runtime.UnlockOSThread()
	return err
}

// address returns the address, inside the namespace, of a server that listens on hostIP, too.
func (n *networkNamespace) address(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(n.hostIP, port)
}

// setLink shuts the interface in the namespace down, or starts it again. The host's end stays up,
// so that packets find no other way.
func (n *networkNamespace) setLink(ctx context.Context, up bool) error {
	state := " down"
	if up {
		state = " up"
	}
	return n.enter(func() error { return ip(ctx, "link set "+n.guestLink+state) })
}

func (n *networkNamespace) close() {
	if n.holder == nil {
		return
	}
	// The interface ends with the namespace, but only some time later. It may not exist.
	_ = ip(context.Background(), "link delete "+n.hostLink)
	n.holder.Stop(connectTimeout, nil)
	for _, f := range []*os.File{n.target, n.own} {
		if f != nil {
			f.Close()
		}
	}
}
