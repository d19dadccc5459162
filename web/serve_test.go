package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/web"
)

func TestAHandlerThatPanicsIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret reason") })
	})
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminText)
	if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("status is %d", resp.StatusCode)
		}
	}
	b.get(api+"/tasks").want(200, nil) // the others go on
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.troubles) != 1 || !strings.Contains(b.troubles[0].Error(), "GET /metrics: panic: secret reason") {
		t.Errorf("troubles are %v", b.troubles)
	}
	if len(b.requests) != 2 || b.requests[0].Status != http.StatusInternalServerError {
		t.Errorf("requests are %+v", b.requests)
	}
}
