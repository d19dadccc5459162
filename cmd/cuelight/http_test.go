package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// site is a client of a daemon's web server.
type site struct {
	t      *testing.T
	base   string
	secret string
}

var addressLogged = regexp.MustCompile(`"address":"(http://[^"]+)"`)

// site waits until the daemon serves, and reads the admin's secret.
func (p *workDir) site(r *process) *site {
	p.t.Helper()
	r.waitForOutput(`"msg":"serving HTTP"`, 1)
	found := addressLogged.FindStringSubmatch(r.stderr())
	secret, err := os.ReadFile(p.path("data/secrets/admin"))
	if err != nil {
		p.t.Fatal(err)
	}
	return &site{p.t, found[1], strings.TrimSpace(string(secret))}
}

// do makes a request, and checks the status of the answer.
func (s *site) do(status int, method, path string, body []byte) []byte {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.secret != "" {
		req.Header.Set("Authorization", "Bearer "+s.secret)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != status {
		s.t.Fatalf("%s %s: %s, want %d\n%s", method, path, resp.Status, status, text)
	}
	return text
}

// until reads a stream of events until one of the type comes, and returns the types.
func (s *site) until(path, last string) (types []string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.base+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, ok := strings.CutPrefix(lines.Text(), "event: ")
		if !ok || name == "progress" {
			continue
		}
		if types = append(types, name); name == last {
			return types
		}
	}
	s.t.Fatalf("the stream ended with %v", types)
	return nil
}

func TestServe_ServesTheAPIAndTheDashboard(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	got := make(chan struct{}, 1) // at least once
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Webhook-Signature") == "" {
			t.Error("a delivery is not signed")
		}
		select {
		case got <- struct{}{}:
		default:
		}
	}))
	defer receiver.Close()
	p.run(0, "webhooks", "add", "--type", "completed", "--webhook-allow", "127.0.0.1", receiver.URL)

	r := p.start("serve", "--listen", "127.0.0.1:0", "--webhook-allow", "127.0.0.1",
		"--debug-listen", "127.0.0.1:0")
	s := p.site(r)
	video, err := os.ReadFile(p.path("clip.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	var uploaded struct {
		Task store.ID `json:"task_id"`
	}
	created := s.do(http.StatusCreated, http.MethodPut, "api/v1/uploads/holiday.mp4", video)
	if err := json.Unmarshal(created, &uploaded); err != nil {
		t.Fatal(err)
	}
	types := s.until(fmt.Sprintf("api/v1/tasks/%s/events", uploaded.Task), "completed")
	if types[0] != "task" { // the state; the rest depends on when the request was made
		t.Errorf("the stream of the task has %v", types)
	}
	kept := s.until(fmt.Sprintf("api/v1/tasks/%s/events?after=0", uploaded.Task), "completed")
	if n := strings.Count(strings.Join(kept, " "), "stage_completed"); n != 5 {
		t.Errorf("the stream of what happened to the task has %v", kept)
	}
	select {
	case <-got:
	case <-time.After(waittest.Limit):
		t.Fatalf("the webhook was not called:\n%s", r.stderr())
	}

	page := string(s.do(http.StatusOK, http.MethodGet, "", nil))
	if !strings.Contains(page, "holiday.mp4") || !strings.Contains(page, "poster.jpg") {
		t.Errorf("the dashboard does not show the video:\n%s", page)
	}
	master := fmt.Sprintf("api/v1/published/%s/master.m3u8", uploaded.Task)
	if list := s.do(http.StatusOK, http.MethodGet, master, nil); !bytes.HasPrefix(list, []byte("#EXTM3U")) {
		t.Errorf("published is %s", list)
	}
	s.do(http.StatusOK, http.MethodPost, "api/v1/pauses", []byte(`{"stage": "transcode"}`))
	r.waitForOutput(`"msg":"paused","stage":"transcode"`, 1)
	for _, metric := range []string{
		`cuelight_stage_attempts_total\{outcome="completed",stage="publish"\} 1`, `cuelight_listener_connected 1`,
		`cuelight_stage_paused\{stage="transcode"\} 1`,
		`cuelight_webhook_deliveries_total\{outcome="delivered",type="completed"\} [1-9]`,
		`cuelight_http_requests_total\{code="2xx",route="PUT /api/v1/uploads/\{id\}"\} 1`, `cuelight_http_streams 0`,
		`cuelight_events_keep_seconds 604800`,
		`cuelight_http_requests_total\{code="2xx",route="GET /api/v1/tasks/\{id\}/events"\} 2`,
	} {
		pattern := regexp.MustCompile(`(?m)^` + metric)
		waittest.Until(p.t, "metrics have "+metric, func() bool {
			return pattern.Match(s.do(http.StatusOK, http.MethodGet, "metrics", nil))
		})
	}
	withoutKey := &site{t, s.base, ""}
	withoutKey.do(http.StatusOK, http.MethodGet, "healthz", nil)
	withoutKey.do(http.StatusOK, http.MethodGet, "readyz", nil)
	withoutKey.do(http.StatusUnauthorized, http.MethodGet, "api/v1/tasks", nil)
	withoutKey.do(http.StatusUnauthorized, http.MethodGet, "metrics", nil)
	r.waitForOutput(`"msg":"serving profiles","address":"127.0.0.1:`, 1)

	guesser := &site{t, s.base, strings.Repeat("guess", 9)}
	guesser.do(http.StatusUnauthorized, http.MethodGet, "api/v1/tasks", nil)
	r.waitForOutput(`"msg":"login failed","address":"127.0.0.1"`, 1)

	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); strings.Contains(text, guesser.secret) || strings.Contains(text, s.secret) ||
		strings.Contains(text, `"level":"error"`) || strings.Count(text, `"msg":"login failed"`) != 1 {
		t.Errorf("it logged\n%s", text)
	}
}

// A drained daemon finishes its work and exits.
func TestServe_EndsWhenItsWorkerIsDrained(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.gate()
	p.run(0, "submit", "clip.mp4")
	r := p.start("serve", "--grace", "0s", "--listen", "127.0.0.1:0")
	s := p.site(r)
	p.waitReached()
	var list struct {
		Workers []struct {
			ID store.ID `json:"worker_id"`
		} `json:"workers"`
	}
	if err := json.Unmarshal(s.do(http.StatusOK, http.MethodGet, "api/v1/workers", nil), &list); err != nil ||
		len(list.Workers) != 1 {
		t.Fatalf("workers are %+v, %v", list, err)
	}
	s.do(http.StatusOK, http.MethodGet, "", nil)
	p.run(0, "drain", list.Workers[0].ID.String()[28:])
	r.waitForOutput(`"msg":"draining"`, 1)
	s.do(http.StatusOK, http.MethodGet, "", nil) // the dashboard is still served
	p.open()
	r.end(0)
	if n := strings.Count(r.stderr(), `"msg":"stage completed"`); n == 0 {
		t.Errorf("it did not finish its work:\n%s", r.stderr())
	}
}

func TestServe_DoesNotStartIfItCannotListen(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	taken := httptest.NewServer(nil)
	defer taken.Close()
	text := p.run(1, "serve", "--listen", taken.Listener.Addr().String()).stderr()
	if !strings.Contains(text, "address already in use") {
		t.Errorf("it printed %q", text)
	}
}
