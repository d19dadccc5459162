package main

import (
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestServe_UntilIdleWaitsForRemoteWorkers(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	if err := os.WriteFile(p.path("key"), p.run(0, "keys", "create", "farm", "--scope", "work").stdout.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(0, "submit", "clip.mp4")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	coordinator := *p
	coordinator.env = slices.Clone(p.env)
	p.gate()
	// The worker is first, so that it waits for work when the coordinator begins.
	w := p.start("work", "--server", "http://"+address, "--key-file", "key", "--scratch-dir", "scratch")
	w.waitForOutput(`"msg":"encoders found"`, 1)
	const idle = 4 * time.Second
	r := coordinator.start("serve", "--listen", address, "--slots", "transcode=0,metadata=0", "--until-idle="+idle.String())
	w.waitForOutput(`"stage":"transcode"`, 1)
	select {
	case err := <-r.ended:
		t.Fatalf("the coordinator ended (%v) while a worker transcodes; it printed\n%s", err, r.stderr())
	case <-time.After(2 * idle):
	}
	p.open()
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	w.signal(syscall.SIGTERM)
	w.end(0)
	r.waitForOutput(`"msg":"stopping because there is no work"`, 1)
	r.end(0)
}
