package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestProfiles_AreServedToThisHostAlone(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{
		":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:6060", "example.com:6060", "localhost.example.com:0", "127.0.0.1.example.com:0", "*:0",
		"", "6060", "127.0.0.1",
	} {
		if CheckDebugListen(addr) == nil {
			t.Errorf("%q is accepted", addr)
		}
	}
	for _, tt := range []struct {
		path, host, site string
		code             int
	}{
		{"/debug/pprof/goroutine?debug=1", "127.0.0.1:6060", "", http.StatusOK},
		{"/debug/pprof/goroutine?debug=1", "localhost:6060", "none", http.StatusOK},
		{"/debug/pprof/goroutine?debug=1", "[::1]:6060", "same-origin", http.StatusOK},
		{"/debug/pprof/goroutine?debug=1", "127.0.0.1:6060", "cross-site", http.StatusForbidden},
		{"/debug/pprof/goroutine?debug=1", "rebound.example.com:6060", "same-origin", http.StatusForbidden},
		{"/debug/pprof/cmdline", "127.0.0.1:6060", "", http.StatusNotFound}, // it may have a password
		{"/debug/vars", "127.0.0.1:6060", "", http.StatusNotFound},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tt.path, nil)
		r.Host = tt.host
		if tt.site != "" {
			r.Header.Set("Sec-Fetch-Site", tt.site)
		}
		w := httptest.NewRecorder()
		profilesHandler().ServeHTTP(w, r)
		if w.Code != tt.code || w.Code != http.StatusOK && strings.Contains(w.Body.String(), "goroutine profile") {
			t.Errorf("%s at %s from %q: %d", tt.path, tt.host, tt.site, w.Code)
		}
	}
}

func TestProfiles_EndDuringOne(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	core, logs := observer.New(zap.InfoLevel)
	ended := make(chan error, 1)
	go func() { ended <- serveProfiles(ctx, "127.0.0.1:0", zap.New(core)) }()
	for logs.Len() == 0 {
		time.Sleep(time.Millisecond)
	}
	answered := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + logs.All()[0].ContextMap()["address"].(string) + "/debug/pprof/trace?seconds=60")
		if err == nil {
			_, err = response.Body.Read(make([]byte, 1))
			response.Body.Close()
		}
		answered <- err
	}()
	if err := <-answered; err != nil {
		t.Fatal(err) // the trace has begun
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
