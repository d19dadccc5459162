package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// noted is a log that may be read while it is written.
type noted struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *noted) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *noted) has(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Contains(n.text.String(), text)
}

// A daemon that cannot serve any more what it is to serve is no use to those who
// look at it, and looks well to its service manager. So it ends, in good order.
func TestDaemonThatCannotServeAnyMoreEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var log noted
	env := dbconn.Environment(p.env)
	sig := &signals{ctx: context.Background(), abort: make(chan struct{})}
	c := &cli{sig: sig, Options: dbconn.Options{Env: env}, in: strings.NewReader(""), out: newStream(&log, env), err: newStream(&log, env)}
	o := &serveOptions{workOptions: c.workFlags(&cobra.Command{}), settle: 1, front: frontFlags(&cobra.Command{})}
	c.DataDir, o.front.listen = p.path("data"), "127.0.0.1:0"
	d, err := c.newDaemon(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.run(t.Context()) }()
	p.until("it works", func() bool { return log.has(`"msg":"working"`) })
	if err := d.beside.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if code := c.finish(<-ended); code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	for _, line := range []string{`"msg":"stopping: nothing is served any more"`, "cuelight: the web server ended: "} {
		if !log.has(line) {
			t.Errorf("it did not say %s; it said\n%s", line, log.text.String())
		}
	}
	if n := ask[int](t, p.connect(), "select count(*) from workers where stopped_at is null"); n != 0 {
		t.Error("it did not say that it stops")
	}
}
