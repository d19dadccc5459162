package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

// A strict managed service gives a role with a schema, and refuses questions about the server.
func TestServe_WorksForARoleThatOwnsOnlyItsSchema(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	p.env = append(p.env, "DATABASE_URL="+server.NewManaged().Config().ConnString())
	called := make(chan struct{}, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	defer receiver.Close()

	p.run(0, "migrate")
	p.run(0, "webhooks", "add", "--type", "completed", "--webhook-allow", "127.0.0.1", receiver.URL)
	r := p.start("serve", "--listen", "127.0.0.1:0", "--webhook-allow", "127.0.0.1")
	s := p.site(r)
	p.run(0, "submit", "clip.mp4")
	r.waitForOutput(`"stage":"publish","attempt":1,"duration_ms"`, 1)
	select {
	case <-called:
	case <-time.After(waittest.Limit):
		t.Errorf("the webhook was not called:\n%s", r.stderr())
	}
	s.until("api/v1/events/stream?after=0", "completed")
	waittest.Until(t, "metrics of the database", func() bool {
		text := string(s.do(http.StatusOK, http.MethodGet, "metrics", nil))
		return strings.Contains(text, "cuelight_outbox_held_seconds 0") && strings.Contains(text, `cuelight_workers{state="idle"} 1`)
	})
	s.do(http.StatusOK, http.MethodGet, "", nil)
	id := p.list()[0].TaskID.String()
	for _, args := range [][]string{
		{"doctor"}, {"workers"}, {"show", id}, {"pause", "--stage", "transcode"}, {"resume", "--stage", "transcode"},
		{"retry", id, "--from", "publish"}, {"webhooks", "list"}, {"keys", "create", "one", "--scope", "read"}, {"delete", id},
	} {
		p.run(0, args...)
	}
	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); strings.Contains(text, `"level":"error"`) || strings.Contains(text, "permission denied") {
		t.Errorf("it logged\n%s", text)
	}
}
