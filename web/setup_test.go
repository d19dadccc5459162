package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
	"github.com/cuelight/cuelight/web"
)

const api = "/api/v1"

var (
	adminText = strings.Repeat("a", 40)
	readText  = strings.Repeat("r", 40)
)

// testServer is a server with its own database.
type testServer struct {
	*store.Store
	t            *testing.T
	pool         *pgxpool.Pool
	server       *web.Server
	url          string
	published    string
	playbackKeys playback.Keys

	mu       sync.Mutex
	requests []web.Request
	errors   []error
}

func setup(t *testing.T, change ...func(*web.Options)) *testServer {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	b := &testServer{t: t, pool: pool, Store: store.New(pool, g), published: t.TempDir()}
	admin, err1 := access.NewSecret(adminText)
	reader, err2 := access.NewSecret(readText)
	guard, err3 := access.New(access.Options{Admin: admin, ReadOnly: reader, Keys: access.NewKeyStore(b.pool)})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	keys, err := playback.LoadKeys(filepath.Join(t.TempDir(), "playback"))
	if err != nil {
		t.Fatal(err)
	}
	b.playbackKeys = keys
	o := web.Options{
		Store: b.Store, Guard: guard, Playback: &playback.Addresses{Keys: &keys, IsThere: b.isThere}, Subscribe: b.feed(), Published: b.published,
		Webhooks: webhook.New(webhook.Options{DB: pool, Store: b.Store}),
		Metrics:  textHandler("figures 1\n"), Healthy: healthHandler(http.StatusOK),
		Ready:     healthHandler(http.StatusServiceUnavailable),
		Uploads:   newUploadHandler(t, b.Store),
		Workers:   newCoordinator(t, pool),
		Profiles:  true,
		Dashboard: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page ", r.URL.Path) }),
		Observe: func(r web.Request) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.requests = append(b.requests, r)
		},
		OnError: func(route string, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.errors = append(b.errors, fmt.Errorf("%s: %w", route, err))
		},
	}
	for _, c := range change {
		c(&o)
	}
	if b.server, err1 = web.New(o); err1 != nil {
		t.Fatal(err1)
	}
	ts := httptest.NewServer(b.server.Handler())
	t.Cleanup(ts.Close)
	t.Cleanup(b.server.Drain)
	b.url = ts.URL
	return b
}

func (b *testServer) isThere(_ context.Context, file string) (bool, error) {
	_, err := os.Stat(filepath.Join(b.published, file))
	return err == nil, nil
}

// newUploadHandler returns the real upload handler, which takes files as the program does.
func newUploadHandler(t *testing.T, st *store.Store) http.Handler {
	t.Helper()
	u, err := upload.New(upload.Options{
		Dir: t.TempDir(), BasePath: web.UploadsPath(""), MinFree: -1,
		Principal: func(ctx context.Context) string { return access.PrincipalOf(ctx).Name },
		OnComplete: func(ctx context.Context, u upload.Upload) (upload.Receipt, error) {
			r, err := st.Submit(ctx, store.Submission{Source: u.Path, UserID: u.UserID, RequestID: "upload:" + u.ID})
			return upload.Receipt{Task: r.ID.String()}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}

func textHandler(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, s)
	})
}

func healthHandler(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":"pass","known":%t}`, access.PrincipalOf(r.Context()).Scope > access.None)
	})
}

// feed reads events for a server until the test ends.
func (b *testServer) feed() func(after int64, keep func(store.Event) bool) web.Subscription {
	f := eventfeed.New(eventfeed.Options{Reader: b.Store, PollInterval: 5 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Run(ctx)
	}()
	b.t.Cleanup(func() { cancel(); <-done })
	return func(after int64, keep func(store.Event) bool) web.Subscription { return f.Subscribe(after, keep) }
}

// call is a request in a test.
type call struct {
	method, path string
	body         any    // JSON; a string as it is
	as           string // a bearer token; default the admin's, "-" for nobody's
	header       http.Header
}

// testResponse is the response to a call.
type testResponse struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// do makes a request, without following redirects, and holds the answer against
// the description of the API.
func (b *testServer) do(c call) testResponse {
	b.t.Helper()
	var body io.Reader
	switch v := c.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(v)
	default:
		text, err := json.Marshal(v)
		if err != nil {
			b.t.Fatal(err)
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), c.method, b.url+c.path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if c.header != nil {
		r.Header = c.header.Clone()
	}
	if body != nil && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	switch c.as {
	case "":
		r.Header.Set("Authorization", "Bearer "+adminText)
	case "-":
	default:
		r.Header.Set("Authorization", "Bearer "+c.as)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	checkAgainstOpenAPI(b.t, c.method, r.URL.Path, resp, text)
	return testResponse{b.t, resp.StatusCode, resp.Header, text}
}

func (b *testServer) get(path string) testResponse {
	b.t.Helper()
	return b.do(call{method: "GET", path: path})
}

func (b *testServer) post(path string, body any) testResponse {
	b.t.Helper()
	return b.do(call{method: "POST", path: path, body: body})
}

// wantStatus checks the status and decodes the body into v, unless v is nil.
func (g testResponse) wantStatus(status int, v any) testResponse {
	g.t.Helper()
	if g.status != status {
		g.t.Fatalf("status is %d, want %d: %s", g.status, status, g.body)
	}
	if v != nil {
		if err := json.Unmarshal(g.body, v); err != nil {
			g.t.Fatalf("%v: %s", err, g.body)
		}
	}
	return g
}

// wantProblem checks that the body is a problem of this kind.
func (g testResponse) wantProblem(status int, kind string) testResponse {
	g.t.Helper()
	var p struct {
		Type   string
		Status int
		Detail string
	}
	g.wantStatus(status, &p)
	if p.Type != "urn:cuelight:problem:"+kind || p.Status != status || p.Detail == "" ||
		g.header.Get("Content-Type") != "application/problem+json" {
		g.t.Fatalf("problem is %s (%s), want %s", g.body, g.header.Get("Content-Type"), kind)
	}
	return g
}

func (b *testServer) submit(source string) store.ID {
	b.t.Helper()
	r, err := b.Submit(b.t.Context(), store.Submission{Source: source})
	if err != nil {
		b.t.Fatal(err)
	}
	return r.ID
}

func (b *testServer) status(id store.ID) store.Status {
	b.t.Helper()
	t, err := b.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return t.Status
}

func (b *testServer) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// key makes an API key.
func (b *testServer) key(scope string) string {
	b.t.Helper()
	_, text, err := access.NewKeyStore(b.pool).CreateKey(b.t.Context(), "test "+scope, scope)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// waitForRequests waits until n requests have ended and returns them. It waits because a
// client may have the response before the server has ended the request.
func (b *testServer) waitForRequests(n int) []web.Request {
	b.t.Helper()
	var requests []web.Request
	waittest.Equal(b.t, "the number of observed requests", n, func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		requests = slices.Clone(b.requests)
		return min(len(requests), n)
	})
	return requests
}

// auditActions returns the actions in the audit, newest first.
func (b *testServer) auditActions() (actions []string) {
	b.t.Helper()
	entries, err := operators.Audits(b.t.Context(), b.pool, 0, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		actions = append(actions, e.Action+" by "+e.Actor)
	}
	return actions
}

// failTask registers a worker that claims the task's first stage and reports it as dead.
func (b *testServer) failTask(id store.ID) {
	b.t.Helper()
	w, err := engine.New(b.pool, b.Graph()).RegisterWorker(b.t.Context(), store.Worker{
		Host: "studio", PID: 7, Version: "v1",
	})
	if err != nil {
		b.t.Fatal(err)
	}
	request := engine.ExchangeRequest{
		Worker: w, FreeSlots: []int{1, 0, 0, 0, 0}, ClaimFrom: []bool{4: false},
		OnlyTasks: []store.ID{id},
	}
	request.ClaimFrom[0] = true
	out, err := engine.New(b.pool, b.Graph()).Exchange(b.t.Context(), request)
	if err != nil || len(out.Claims) != 1 || out.Claims[0].Task != id {
		b.t.Fatalf("claims are %+v, %v", out.Claims, err)
	}
	c := out.Claims[0]
	request.FreeSlots[0], request.ClaimFrom[0] = 0, false
	request.Reports = []engine.Report{{
		Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Failed, Dead: true, Class: "transient",
		Error: "disk 7 broke",
	}}
	if _, err := engine.New(b.pool, b.Graph()).Exchange(b.t.Context(), request); err != nil {
		b.t.Fatal(err)
	}
}

// publish writes a file below a task's published directory.
func (b *testServer) publish(id store.ID, name, content string) {
	b.t.Helper()
	path := filepath.Join(b.published, id.String(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// playbackPath is the path of a published file for viewers: signed by a token, or without one, of a public video.
func playbackPath(token string, task store.ID, name string) string {
	return path.Join("/play", token, task.String(), name)
}

// publishedPath is the path of a file in the published directory for clients with a key.
func publishedPath(name string) string { return api + "/published/" + name }
