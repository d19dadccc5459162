package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// networkNamespace is a namespace with one network interface, whose peer is in this program's
// namespace. It ends with the process that holds it, which ends with this program.
type networkNamespace struct {
	holder    *childproc.Process
	hostLink  string // the interface at this end …
	guestLink string // … and at the other
	hostIP    string
	subnet    string
}

// newNetworkNamespace creates a namespace. Where that is not possible, the error says why.
func newNetworkNamespace(ctx context.Context) (_ *networkNamespace, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root may create network namespaces")
	}
	// The addresses of 198.18.0.0/15 are reserved for tests of networks.
	block := os.Getpid() % (1 << 14)
	address := func(last int) string { return fmt.Sprintf("198.18.%d.%d", block>>6, block&63<<2|last) }
	n := &networkNamespace{
		hostLink: hostLinkName(), guestLink: "chaos",
		hostIP: address(1), subnet: address(0) + "/30",
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	cmd := exec.Command("unshare", "--net", "sh", "-c", "echo; exec cat")
	created := make(chan struct{})
	cmd.Stdout = childproc.Lines(func([]byte) { close(created) })
	if _, err := cmd.StdinPipe(); err != nil { // for cat to read
		return nil, err
	}
	if n.holder, err = childproc.Start(cmd, childproc.Options{}); err != nil {
		return nil, err
	}
	if err := proofkit.WaitReady(ctx, n.holder, created); err != nil {
		return nil, fmt.Errorf("create a network namespace: %w", err)
	}
	if err := n.configure(ctx, address(2)); err != nil {
		return nil, err
	}
	if err := n.checkConnection(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// hostLinkName differs between programs that run at the same time.
func hostLinkName() string { return fmt.Sprintf("chaos%d", os.Getpid()) }

// enter returns the command that runs another command in the namespace.
func (n *networkNamespace) enter() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.holder.PID()), "--"}
}

func (n *networkNamespace) configure(ctx context.Context, guestIP string) error {
	for _, line := range []string{
		fmt.Sprintf("link add %s type veth peer name %s netns %d", n.hostLink, n.guestLink, n.holder.PID()),
		"address add " + n.hostIP + "/30 dev " + n.hostLink,
		"link set " + n.hostLink + " up",
	} {
		if err := proofkit.Execute(ctx, "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	for _, line := range []string{
		"link set lo up", "address add " + guestIP + "/30 dev " + n.guestLink, "link set " + n.guestLink + " up",
	} {
		if err := n.execute(ctx, "ip "+line); err != nil {
			return err
		}
	}
	return nil
}

// execute runs a shell command in the namespace.
func (n *networkNamespace) execute(ctx context.Context, line string) error {
	args := append(n.enter(), "bash", "-c", line)
	return proofkit.Execute(ctx, args[0], args[1:]...)
}

// checkConnection checks that packets get through: a firewall may be in the way.
func (n *networkNamespace) checkConnection(ctx context.Context) error {
	l, err := net.Listen("tcp", n.hostIP+":0")
	if err != nil {
		return err
	}
	defer l.Close() // the kernel accepts the connection
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return n.execute(ctx, fmt.Sprintf(": </dev/tcp/%s/%d", n.hostIP, l.Addr().(*net.TCPAddr).Port))
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
	return n.execute(ctx, "ip link set "+n.guestLink+state)
}

func (n *networkNamespace) close() {
	if n.holder == nil {
		return
	}
	// The interface ends with the namespace, but only some time later. It may not exist.
	_ = proofkit.Execute(context.Background(), "ip", "link", "delete", n.hostLink)
	n.holder.Kill()
}
