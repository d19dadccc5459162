package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/web"
)

func TestHandler_PanicIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret reason") })
	})
	b.get("/metrics").wantProblem(500, "internal")
	b.get(api+"/tasks").wantStatus(200, nil) // other requests are served
	requests := b.waitForRequests(2)
	if !slices.ContainsFunc(requests, func(r web.Request) bool { return r.Status == http.StatusInternalServerError }) {
		t.Errorf("requests are %+v", requests)
	}
	b.wantError("GET /metrics: panic: secret reason")
}

// wantError waits until the server has reported this error, and no other.
func (b *testServer) wantError(text string) {
	b.t.Helper()
	waittest.Until(b.t, "an error is reported", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.errors) > 0
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errors) != 1 || !strings.Contains(b.errors[0].Error(), text) {
		b.t.Errorf("the reported errors are %v", b.errors)
	}
}

func TestHandler_ReportsAResponseThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.registerRemote()
	b.exec("update workers set started_at = '10000-01-01'")
	b.get(api+"/workers").wantProblem(500, "internal")
	b.wantError("GET /api/v1/workers: encode response: ")
}

func TestStream_ReportsAnEventThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openStream("/events/stream", "")
	if m, _ := s.next(); m.event != "open" {
		t.Fatalf("the stream starts with %+v", m)
	}
	b.exec("insert into outbox (at, type) values ('10000-01-01', 'worker_started')")
	if m, ok := s.next(); ok {
		t.Errorf("the stream goes on with %+v", m)
	}
	b.wantError("encode event worker_started: ")
}
