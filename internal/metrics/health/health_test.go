package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/metrics/health"
)

func passes(context.Context) error { return nil }

func fails(context.Context) error { return errors.New("db.internal does not answer") }

// request makes a request and reads the report.
func request(t *testing.T, h *health.Health, method string) (*http.Response, health.Report) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "/readyz", nil))
	var r health.Report
	if method == http.MethodGet {
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
	}
	return w.Result(), r
}

func TestReport_PassesIfAllChecksPass(t *testing.T) {
	t.Parallel()
	h := health.New(health.Options{Checks: []health.Check{{Name: "a", Run: passes}, {Name: "b", Run: passes}}})
	resp, r := request(t, h, http.MethodGet)
	if resp.StatusCode != http.StatusOK || r.Status != health.Pass || len(r.Checks) != 2 || r.Checks[0].Name != "a" ||
		r.Checks[1].Name != "b" {
		t.Errorf("status %d, %+v", resp.StatusCode, r)
	}
	if resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", resp.Header)
	}
}

func TestReport_FailsWithTheReasonOfAFailedCheck(t *testing.T) {
	t.Parallel()
	h := health.New(health.Options{Checks: []health.Check{{Name: "a", Run: passes}, {Name: "database", Run: fails}}})
	resp, r := request(t, h, http.MethodGet)
	if resp.StatusCode != http.StatusServiceUnavailable || r.Status != health.Fail {
		t.Errorf("status %d, %s", resp.StatusCode, r.Status)
	}
	c := r.Checks
	if c[0].Status != health.Pass || c[1].Status != health.Fail || c[1].Error != "db.internal does not answer" {
		t.Errorf("checks are %+v", c)
	}
}

func TestReport_PassesWithoutChecks(t *testing.T) {
	t.Parallel()
	resp, r := request(t, health.New(health.Options{}), http.MethodGet)
	if resp.StatusCode != http.StatusOK || r.Checks == nil {
		t.Errorf("status %d, checks %v", resp.StatusCode, r.Checks)
	}
}

func TestServeHTTP_ShowsReasonsOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	var canSee bool
	h := health.New(health.Options{
		Checks:        []health.Check{{Name: "database", Run: fails}},
		CanSeeReasons: func(*http.Request) bool { return canSee },
	})
	if _, r := request(t, h, http.MethodGet); r.Checks[0].Error != "" || r.Checks[0].Status != health.Fail {
		t.Errorf("not allowed: %+v", r.Checks)
	}
	canSee = true
	if _, r := request(t, h, http.MethodGet); r.Checks[0].Error == "" {
		t.Error("allowed, but the reason is missing")
	}
}

func TestServeHTTP_AllowsGETAndHEADOnly(t *testing.T) {
	t.Parallel()
	h := health.New(health.Options{Checks: []health.Check{{Name: "a", Run: passes}}})
	if resp, _ := request(t, h, http.MethodHead); resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD: status %d", resp.StatusCode)
	}
	resp, _ := request(t, h, http.MethodPost)
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") == "" {
		t.Errorf("POST: status %d", resp.StatusCode)
	}
}

func TestReport_RunsChecksConcurrentlyAndCachesForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int32
		slow := func(context.Context) error { ran.Add(1); time.Sleep(500 * time.Millisecond); return nil }
		h := health.New(health.Options{
			Checks: []health.Check{{Name: "a", Run: slow}, {Name: "b", Run: slow}, {Name: "c", Run: slow}},
		})
		began := time.Now()
		for range 20 {
			go h.Report(t.Context())
		}
		h.Report(t.Context())
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it took %s, want the duration of one check", took)
		}
		time.Sleep(499 * time.Millisecond)
		h.Report(t.Context())
		if n := ran.Load(); n != 3 {
			t.Errorf("checks ran %d times within a second, want 3", n)
		}
		time.Sleep(time.Millisecond)
		h.Report(t.Context())
		if n := ran.Load(); n != 6 {
			t.Errorf("after a second, checks ran %d times, want 6", n)
		}
	})
}

func TestReport_TimesOutASlowCheckAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := health.New(health.Options{Timeout: 300 * time.Millisecond, Checks: []health.Check{
			{Name: "slow", Run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			{Name: "quick", Run: passes},
		}})
		began := time.Now()
		r := h.Report(t.Context())
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if r.Status != health.Fail || r.Checks[0].Status != health.Fail || r.Checks[1].Status != health.Pass {
			t.Errorf("got %+v", r)
		}
	})
}

// A network disk may never answer, and ignores the context.
func TestReport_DoesNotRepeatAHangingCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		answer := make(chan struct{})
		h := health.New(health.Options{
			Checks: []health.Check{{Name: "disk", Run: func(context.Context) error { runs.Add(1); <-answer; return nil }}},
		})
		for range 5 {
			if r := h.Report(t.Context()); r.Status != health.Fail || r.Checks[0].Error == "" {
				t.Errorf("got %+v", r)
			}
			time.Sleep(2 * time.Second)
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("it ran %d times, want 1", n)
		}
		close(answer)
		synctest.Wait()
		if r := h.Report(t.Context()); r.Status != health.Pass {
			t.Errorf("after the disk answered: %+v", r)
		}
	})
}

func TestReport_FailsACheckThatPanics(t *testing.T) {
	t.Parallel()
	h := health.New(health.Options{Checks: []health.Check{{Name: "a", Run: func(context.Context) error { panic("no") }}}})
	if r := h.Report(t.Context()); r.Status != health.Fail || !strings.Contains(r.Checks[0].Error, "panic: no") {
		t.Errorf("got %+v", r)
	}
}

// A probe that disconnects must not fail the report of the next one.
func TestReport_ChecksOutliveTheirCaller(t *testing.T) {
	t.Parallel()
	h := health.New(health.Options{
		Checks: []health.Check{{Name: "a", Run: func(ctx context.Context) error { return ctx.Err() }}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := h.Report(ctx); r.Status != health.Pass {
		t.Errorf("got %+v", r)
	}
}

func TestChecks_OfAProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		check health.Check
		want  string // in the error; empty for none
	}{
		"loops that make progress": {health.Loops(func() []string { return nil }), ""},
		"stuck loops": {
			health.Loops(func() []string { return []string{"heartbeat", "dispatcher"} }), "heartbeat, dispatcher",
		},
		"connected listener":    {health.Listening(func() bool { return true }), ""},
		"disconnected listener": {health.Listening(func() bool { return false }), "notifications"},
		"enough space":          {health.Disk("disk", dir, 1), ""},
		"too little space":      {health.Disk("disk", dir, math.MaxInt64), dir},
		"missing directory":     {health.Disk("disk", filepath.Join(dir, "missing"), 1), "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.check.Run(t.Context())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
