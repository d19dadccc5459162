//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSockets_LeadToTheParentAndNowhereElse(t *testing.T) {
	t.Parallel()
	if err := CheckSockets(); err != nil {
		t.Skip(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	elsewhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	_, port, _ := net.SplitHostPort(elsewhere.Addr().String())
	var reached sync.WaitGroup
	defer reached.Wait()
	defer elsewhere.Close()
	reached.Go(func() {
		if c, err := elsewhere.Accept(); err == nil {
			c.Close()
			t.Error("the program has reached another server")
		}
	})
	cmd := exec.Command(bash, "-c", fmt.Sprintf(`
		exec 3<>/dev/tcp/127.0.0.1/%[1]s; echo one >&3; read -r answer <&3; echo "$answer"
		exec 4<>/dev/tcp/127.0.0.1/%[1]s; echo two >&4; read -r answer <&4; echo "$answer"
		(exec 5<>/dev/tcp/::1/%[1]s) 2>/dev/null || echo no IPv6
		(exec 6<>/dev/udp/127.0.0.1/%[1]s) 2>/dev/null || echo no UDP`, port))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	p := Policy{}
	l, err := p.Sockets(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer l.Close()
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				text := make([]byte, 4)
				if _, err := io.ReadFull(c, text); err == nil {
					_, _ = c.Write([]byte("got " + string(text)))
				}
			})
		}
	})
	if err := p.Wrap(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if want := "got one\ngot two\nno IPv6\nno UDP\n"; out.String() != want {
		t.Errorf("the program printed %q; want %q", out.String(), want)
	}
}

func TestSockets_AreFewAtOnce(t *testing.T) {
	t.Parallel()
	if err := CheckSockets(); err != nil {
		t.Skip(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(bash, "-c", "for i in {10..60}; do eval \"exec $i<>/dev/tcp/127.0.0.1/1\"; echo; done")
	opened := make(chan struct{}, 100)
	cmd.Stdout = writerFunc(func(p []byte) {
		for range p {
			opened <- struct{}{}
		}
	})
	p := Policy{}
	l, err := p.Sockets(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := p.Wrap(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range maxSockets {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		<-opened
	}
	select {
	case <-opened:
		t.Error("a further socket was opened")
	case <-time.After(50 * time.Millisecond):
	}
	conns[0].Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conns = append(conns, c)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	l.Close()
	for _, c := range conns {
		c.Close()
	}
}

type writerFunc func(p []byte)

func (w writerFunc) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestSockets_EndWithAProgramThatNeverStarts(t *testing.T) {
	t.Parallel()
	p := Policy{}
	l, err := p.Sockets(exec.Command("missing"))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Millisecond, func() { l.Close() })
	if c, err := l.Accept(); err == nil {
		t.Errorf("there is a connection: %v", c)
	}
}
