package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// scopes are the scopes that the operations require. The list repeats the routes, so that
// no change opens an operation by mistake.
var scopes = map[string]string{
	"GET /healthz": "", "GET /readyz": "", "POST /login": "", "POST /logout": "",
	"POST " + api + "/tasks": "submit",
}

func needed(route string) string {
	if scope, ok := scopes[route]; ok {
		return scope
	}
	method, path, _ := strings.Cut(route, " ")
	switch {
	case strings.HasPrefix(path, api+"/uploads/"):
		return "submit"
	case method != "GET", path == api+"/keys", path == api+"/audit", path == api+"/webhooks", path == api+"/deliveries":
		return "admin"
	}
	return "read"
}

func TestRoutes_RequireTheirScope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rank := map[string]int{"": 0, "read": 1, "submit": 2, "admin": 3}
	keys := map[string]string{"": "-", "work": b.key("work"), "read": b.key("read"), "submit": b.key("submit")}
	for _, route := range web.Routes(b.server) {
		method, path, _ := strings.Cut(route, " ")
		if path == "/login" || isForViewers(path) {
			continue // they respond to a missing secret or signature in the same way for everybody
		}
		if strings.HasSuffix(path, "events/stream") {
			path += "?types=nonsense" // otherwise it would stay open
		}
		id := store.ID{9}.String()
		path = strings.NewReplacer("{id}", id, "{path...}", "x", "{token}", id, "{stage}", "ingest").Replace(path)
		for scope, as := range keys {
			got := b.do(call{method: method, path: path, as: as})
			refused := got.status == http.StatusUnauthorized || got.status == http.StatusForbidden
			permitted := rank[scope] >= rank[needed(route)]
			if isWorker := strings.HasPrefix(path, workerAPI+"/"); isWorker || scope == "work" {
				permitted = isWorker && scope == "work" || needed(route) == ""
			}
			if refused == permitted {
				t.Errorf("%s as %q: %d %s", route, scope, got.status, got.body)
			}
			if refused && (scope == "") != (got.status == http.StatusUnauthorized) {
				t.Errorf("%s as %q: %d", route, scope, got.status)
			}
			if got.status == http.StatusUnauthorized && got.header.Get("WWW-Authenticate") != `Bearer realm="cuelight"` {
				t.Errorf("%s as %q: %v", route, scope, got.header)
			}
		}
	}
}

func isForViewers(path string) bool {
	return strings.HasPrefix(path, "/play/") || strings.HasPrefix(path, "/embed/") || strings.HasPrefix(path, "/player/")
}

// A misspelt parameter must not select everything. Handlers from other packages read
// their own parameters.
func TestRoutes_RejectUnknownParameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, route := range web.Routes(b.server) {
		method, path, _ := strings.Cut(route, " ")
		switch {
		case strings.HasPrefix(path, api+"/uploads/"), strings.HasPrefix(path, api+"/published/"),
			strings.HasPrefix(path, workerAPI+"/"), isForViewers(path),
			strings.HasPrefix(path, "/log"),
			path == "/metrics", path == "/healthz", path == "/readyz":
			continue
		}
		path = strings.NewReplacer("{id}", store.ID{9}.String()).Replace(path)
		got := b.do(call{method: method, path: path + "?nonsense=1", body: "{}"})
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), `nonsense`) {
			t.Errorf("%s: %d %s", route, got.status, got.body)
		}
	}
	b.post(api+"/pauses?stage=transcode", map[string]any{}).wantProblem(400, "invalid-request")
	if pauses, err := b.Pauses(t.Context()); err != nil || len(pauses) > 0 {
		t.Errorf("paused %v, %v", pauses, err)
	}
}

func TestUnknownPath_IsAProblem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.get("/api/v1/nothing").wantProblem(404, "not-found")
	b.get("/api/").wantProblem(404, "not-found")
	got := b.do(call{method: "PATCH", path: api + "/tasks"}).wantProblem(405, "method-not-allowed")
	if got.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("allowed is %q", got.header.Get("Allow"))
	}
	if got := b.do(call{method: "GET", path: api + "/tasks/retry"}); got.status != 405 && got.status != 404 {
		t.Errorf("%d", got.status)
	}
	if got := b.do(call{method: "HEAD", path: api + "/tasks"}); got.status != 200 || len(got.body) != 0 {
		t.Errorf("%d %s", got.status, got.body)
	}
	b = setup(t, func(o *web.Options) {
		o.Dashboard, o.Subscribe, o.Webhooks, o.Published, o.Metrics = nil, nil, nil, "", nil
	})
	for _, path := range []string{"/", "/nothing", "/metrics", api + "/events/stream", api + "/webhooks"} {
		b.get(path).wantProblem(404, "not-found")
	}
}

func TestCrossOriginRequests_ChangeNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.PublicURL = "https://studio.example/media" })
	try := func(header http.Header) testResponse {
		header.Set("Content-Type", "application/json")
		return b.do(call{method: "POST", path: api + "/pauses", body: `{}`, header: header})
	}
	try(http.Header{"Sec-Fetch-Site": {"cross-site"}}).wantProblem(403, "cross-origin")
	try(http.Header{"Sec-Fetch-Site": {"same-site"}}).wantProblem(403, "cross-origin")
	try(http.Header{"Origin": {"https://evil.example"}}).wantProblem(403, "cross-origin")
	try(http.Header{"Sec-Fetch-Site": {"same-origin"}}).wantStatus(200, nil)
	try(http.Header{"Origin": {b.url}}).wantStatus(200, nil)
	try(http.Header{"Origin": {"https://studio.example"}, "Sec-Fetch-Site": {"cross-site"}}).wantStatus(200, nil)
	crossOrigin := call{method: "GET", path: api + "/tasks", header: http.Header{"Origin": {"https://evil.example"}}}
	if got := b.do(crossOrigin); got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", got.header)
	}
}

func TestResponses_HaveSecurityHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/", "/login", api + "/tasks", "/nothing", "/healthz", "/openapi.json"} {
		h := b.get(path).header
		csp := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") ||
			!strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: policy is %q", path, csp)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") == "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestObserve_ReceivesNoSecrets(t *testing.T) {
	t.Parallel()
	wrapped := make(chan string, 10)
	b := setup(t, func(o *web.Options) {
		o.Wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				wrapped <- r.Method
				next.ServeHTTP(w, r.WithContext(r.Context())) // another request, as a tracer makes
			})
		}
	})
	key := b.key("read")
	b.do(call{
		method: "POST", path: api + "/tasks/" + store.ID{9}.String() + "/cancel", as: "secretguess",
	}).wantProblem(401, "unauthenticated")
	b.do(call{method: "GET", path: api + "/tasks?source=secretsource", as: key}).wantStatus(200, nil)
	b.do(call{method: "POST", path: api + "/tasks/" + store.ID{9}.String() + "/cancel"}).wantProblem(404, "not-found")
	b.do(call{
		method: "GET", path: "/x?secretquery", as: "-", header: http.Header{"Authorization": {"Bearer secretbearer"}},
	})
	requests := b.waitForRequests(4)
	if len(wrapped) != 2 { // only those with a principal
		t.Errorf("%d requests are wrapped", len(wrapped))
	}
	if got := requests[2].Route; got != "POST "+api+"/tasks/{id}/cancel" {
		t.Errorf("the route of a change is %q", got)
	}
	r := requests[1]
	if r.Stream || r.Method != "GET" || r.Route != "GET "+api+"/tasks" || r.Status != 200 || r.Bytes == 0 ||
		r.Duration <= 0 || !strings.HasPrefix(r.Principal, "key ") {
		t.Errorf("%+v", r)
	}
	for _, r := range requests {
		if text := strings.Join([]string{r.Method, r.Route, r.Principal}, " "); strings.Contains(text, "secret") ||
			strings.Contains(text, key) {
			t.Errorf("%+v", r)
		}
	}
}

func TestHealth_ShowsDetailsToKnownPrincipals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for as, known := range map[string]string{"-": "false", adminText: "true", "wrong": "false"} {
		got := b.do(call{method: "GET", path: "/healthz", as: as}).wantStatus(200, nil)
		if !strings.Contains(string(got.body), `"known":`+known) {
			t.Errorf("%s", got.body)
		}
		b.do(call{method: "GET", path: "/readyz", as: as}).wantStatus(503, nil)
	}
	b.do(call{method: "GET", path: "/metrics", as: readText}).wantStatus(200, nil)
}

func TestUploads_ReceiveTheWholePath(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) {
		o.BasePath = "/cue"
		o.Uploads = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Method, " ", r.URL.Path)
		})
	})
	at := web.UploadsPath("/cue")
	for _, c := range []string{
		"POST " + at, "PATCH " + at + "abc", "HEAD " + at + "abc", "DELETE " + at + "abc", "PUT " + at,
		"POST " + at + "abc",
	} {
		method, path, _ := strings.Cut(c, " ")
		got := b.do(call{
			method: method, path: path, body: "x",
			header: http.Header{"Content-Type": {"application/offset+octet-stream"}},
		}).wantStatus(200, nil)
		if method != "HEAD" && string(got.body) != c {
			t.Errorf("%s: %s", c, got.body)
		}
	}
}

func TestRoutes_RespondUnavailableWithoutADatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pool.Close()
	for _, path := range []string{
		"/tasks", "/stages", "/events", "/keys", "/tasks/" + store.ID{1}.String() + "/events", "/events/stream",
	} {
		got := b.get(api + path)
		if got.status != 503 && got.status != 500 {
			t.Errorf("%s: %d", path, got.status)
		}
		if strings.Contains(string(got.body), "pool") {
			t.Errorf("%s shows details of the error: %s", path, got.body)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errors) == 0 || !strings.Contains(b.errors[0].Error(), api+"/tasks") {
		t.Errorf("the reported errors are %v", b.errors)
	}
}

// browser makes requests as a browser does, but follows no redirects.
func (b *testServer) browser(method, path string, form url.Values, cookies ...*http.Cookie) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(body)
}

func TestBrowser_LogsInAndOut(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.BasePath = "/cue" })
	redirected := func(resp *http.Response, to string) {
		t.Helper()
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != to {
			t.Fatalf("%d to %q, want %q", resp.StatusCode, resp.Header.Get("Location"), to)
		}
	}
	resp, _ := b.browser("GET", "/cue/videos/7?x=1", nil)
	redirected(resp, "/cue/login?next=%2Fcue%2Fvideos%2F7%3Fx%3D1")
	resp, _ = b.browser("GET", "/cue/", nil)
	redirected(resp, "/cue/login")
	resp, body := b.browser("GET", "/cue/login?next=x", nil)
	if resp.StatusCode != 200 || body != "page /login" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if _, body := b.browser("GET", "/cue/assets/ui.css", nil); body != "page /assets/ui.css" {
		t.Errorf("assets: %s", body)
	}
	resp, _ = b.browser("POST", "/cue/login", url.Values{"secret": {"wrong"}, "next": {"/cue/dead"}})
	redirected(resp, "/cue/login?failed=wrong&next=%2Fcue%2Fdead")
	resp, _ = b.browser("POST", "/cue/login", url.Values{"secret": {readText}, "next": {"//evil.example"}})
	redirected(resp, "/cue/")
	resp, _ = b.browser("POST", "/cue/login", url.Values{"secret": {readText}, "next": {"/cue/dead?a=b"}})
	redirected(resp, "/cue/dead?a=b")
	session := resp.Cookies()[0]
	if session.Path != "/" && session.Path != "/cue/" || !session.HttpOnly {
		t.Errorf("cookie is %v", session)
	}
	if _, body := b.browser("GET", "/cue/videos/7", nil, session); body != "page /videos/7" {
		t.Errorf("logged in: %s", body)
	}
	if resp, _ := b.browser("GET", "/cue"+api+"/tasks", nil, session); resp.StatusCode != 200 {
		t.Errorf("the API by a cookie: %d", resp.StatusCode)
	}
	if resp, _ := b.browser("POST", "/cue"+api+"/pauses", url.Values{}, session); resp.StatusCode != 403 {
		t.Errorf("a reader pauses: %d", resp.StatusCode)
	}
	resp, _ = b.browser("POST", "/cue/logout", url.Values{}, session)
	redirected(resp, "/cue/login")
	resp, _ = b.browser("GET", "/cue/", nil, session)
	redirected(resp, "/cue/login")
	resp, _ = b.browser("POST", "/cue/videos/7/retry", url.Values{})
	redirected(resp, "/cue/login")
}

func TestProgram_LogsIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	got := b.do(call{
		method: "POST", path: "/login", body: "secret=" + adminText, as: "-", header: form,
	}).wantStatus(204, nil)
	if len(got.header.Values("Set-Cookie")) != 1 {
		t.Errorf("%v", got.header)
	}
	for n := range 12 {
		got = b.do(call{method: "POST", path: "/login", body: "secret=wrong" + strings.Repeat("x", n), as: "-", header: form})
	}
	if got.wantProblem(429, "too-many-failures"); got.header.Get("Retry-After") == "" {
		t.Errorf("%v", got.header)
	}
	b.do(call{
		method: "POST", path: "/login", body: "secret=" + strings.Repeat("x", 10<<10), as: "-", header: form,
	}).wantProblem(400, "invalid-request")
	b.do(call{method: "POST", path: "/logout", as: "-"}).wantStatus(204, nil)
	resp, _ := b.browser("POST", "/login", url.Values{"secret": {"another"}})
	if to := resp.Header.Get("Location"); !strings.HasPrefix(to, "/login?failed=limited&wait=") {
		t.Errorf("to %q", to)
	}
}

func TestNoAuth_AcceptsLocalHostNamesOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) {
		guard, err := access.New(access.Options{NoAuth: true})
		if err != nil {
			t.Fatal(err)
		}
		o.Guard = guard
	})
	b.do(call{method: "GET", path: api + "/tasks", as: "-"}).wantStatus(200, nil)
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+api+"/tasks", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "rebound.example"
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("status is %d", resp.StatusCode)
	}
}
