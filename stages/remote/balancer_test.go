package remote_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cuelight/cuelight/internal/problem"
)

// balancer is a proxy that can lead to another coordinator.
type balancer struct {
	url    string
	target atomic.Pointer[url.URL]
	t      testing.TB
}

func newBalancer(t testing.TB, target string) *balancer {
	b := &balancer{t: t}
	b.lead(target)
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(b.target.Load()) }}
	server := httptest.NewServer(proxy)
	b.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return b
}

// lead sends later requests to a coordinator.
func (b *balancer) lead(target string) {
	u, err := url.Parse(target)
	if err != nil {
		b.t.Fatal(err)
	}
	b.target.Store(u)
}

// post sends a request to the site's coordinator and returns the kind of its problem, or nothing.
func (s *site) post(key, path, body string) string {
	s.t.Helper()
	return s.problem(key, http.MethodPost, path, body)
}

// get is post without a body.
func (s *site) get(key, path string) string {
	s.t.Helper()
	return s.problem(key, http.MethodGet, path, "")
}

func (s *site) problem(key, method, path, body string) string {
	s.t.Helper()
	status, text := s.sendAs(key, method, path, body)
	if status < 300 {
		return ""
	}
	var p struct{ Type string }
	if err := json.Unmarshal(text, &p); err != nil {
		s.t.Fatalf("%d %s: %v", status, text, err)
	}
	return strings.TrimPrefix(p.Type, problem.TypePrefix)
}

// sendAs sends a request with a key to the site's coordinator and returns its answer.
func (s *site) sendAs(key, method, path, body string) (status int, text []byte) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := s.http.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, text
}
