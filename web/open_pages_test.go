package web_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/cuelight/cuelight/web"
)

// Otherwise a client with read access could use up all connections for streams.
func TestOpenPages_CountAsStreams(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) {
		o.MaxStreams, o.MaxStreamsPerPrincipal = 3, 2
		o.Dashboard = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush() // the client may be gone
			if r.URL.Path == "/live" {
				<-r.Context().Done()
			}
		})
	})
	open := func(path, secret string) (status int, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode, cancel
	}
	_, end := open("/live?page=board", readText)
	for _, c := range []struct {
		path, secret string
		want         int
	}{
		{api + "/events/stream", readText, 200},
		{"/live?page=board", readText, 429},
		{api + "/events/stream", readText, 429},
		{"/", readText, 200},
		{"/live?page=board", adminText, 200},
		{"/live?page=board", adminText, 429}, // all are open
	} {
		if got, _ := open(c.path, c.secret); got != c.want {
			t.Errorf("%s gets the status %d, want %d", c.path, got, c.want)
		}
	}
	end()
	for status := 0; status != 200; { // the server notices the closed stream after a moment
		if status, _ = open("/live?page=board", readText); status != 200 && status != 429 {
			t.Fatalf("status is %d", status)
		}
	}
}
