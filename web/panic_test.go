package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

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
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errors) != 1 || !strings.Contains(b.errors[0].Error(), "GET /metrics: panic: secret reason") {
		t.Errorf("the reported errors are %v", b.errors)
	}
}
