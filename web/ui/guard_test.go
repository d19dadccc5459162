package ui_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
	"github.com/cuelight/cuelight/web/ui"
	"github.com/cuelight/cuelight/web/ui/internal/uitest"
)

// The dashboard behind package web's server, mounted under a path.
func TestDashboard_WorksBehindTheGuard(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	s := &testSite{t: t, st: store.New(pool, g)}
	s.seeded = uitest.Seed(t, pool)
	admin, reader := strings.Repeat("a", 32), strings.Repeat("r", 32)
	guard := newGuard(t, admin, reader)
	dashboard, err := ui.New(ui.Options{
		Store: ui.NewReader(s.st), Actions: uitest.Actions(s.st), BasePath: "/below", Login: "/below/login",
		Logout: "/below/logout",
		Viewer: func(ctx context.Context) ui.Viewer {
			return ui.Viewer{
				Name:   access.PrincipalOf(ctx).Name,
				Submit: access.Check(ctx, access.Submit) == nil, Operate: access.Check(ctx, access.Admin) == nil,
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := web.New(web.Options{Store: s.st, Guard: guard, Dashboard: dashboard, BasePath: "/below"})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server.Handler())
	defer h.Close()
	s.url, s.client = h.URL, h.Client()

	accept := func(method, path, kind string, form url.Values) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", kind)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return s.client.Do(r)
	}
	page := "/below/videos/" + s.seeded.Waiting.String()
	for _, c := range []struct {
		name, secret string
		cancelled    int
	}{{"read-only", reader, http.StatusForbidden}, {"admin", admin, http.StatusOK}} {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s.client.Jar = jar
		answer, err := accept(http.MethodGet, page, "text/html", nil)
		if err != nil || !strings.HasPrefix(answer.Request.URL.RequestURI(), "/below/login?next=") {
			t.Fatalf("an unauthenticated request is redirected to %v, %v", answer.Request.URL, err)
		}
		answer.Body.Close()
		answer, err = accept(http.MethodGet, "/below/live?page=board", "text/event-stream", nil)
		if err != nil || answer.StatusCode != http.StatusUnauthorized {
			t.Fatalf("an unauthenticated stream: status %v, %v", answer.Status, err)
		}
		answer.Body.Close()
		answer, err = accept(http.MethodPost, "/below/login", "text/html", url.Values{"secret": {c.secret}, "next": {page}})
		if err != nil || answer.Request.URL.Path != page || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: the sign-in leads to %v, %v", c.name, answer.Request.URL, err)
		}
		answer.Body.Close()
		answer, err = accept(http.MethodGet, "/below/live?page=board", "text/event-stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		if event, _, _ := nextMessage(t, bufio.NewScanner(answer.Body)); event != "open" {
			t.Errorf("%s: the first event of the stream is %q", c.name, event)
		}
		answer.Body.Close()
		answer, err = accept(http.MethodPost, page+"/cancel", "application/json", nil)
		if err != nil || answer.StatusCode != c.cancelled {
			t.Errorf("%s: cancel: status %v, %v", c.name, answer.Status, err)
		}
		answer.Body.Close()
	}
	if got := s.status(s.seeded.Waiting); got != store.StatusCancelled {
		t.Errorf("the video is %s", got)
	}
}

func newGuard(t *testing.T, admin, reader string) *access.Guard {
	t.Helper()
	all, err := access.NewSecret(admin)
	if err != nil {
		t.Fatal(err)
	}
	some, err := access.NewSecret(reader)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := access.New(access.Options{Admin: all, ReadOnly: some, Path: "/below/"})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}
