package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

// apiPath is the path of the worker API.
const apiPath = "/api/v1/worker"

// maxBody bounds the memory of a request's JSON, in bytes.
const maxBody = 32 << 20

// fault is a handler that replaces the coordinator, next, for a request.
type fault func(w http.ResponseWriter, r seenRequest, next http.Handler)

// front stands between the worker and the coordinator.
type front struct {
	next http.Handler

	mu      sync.Mutex // guards the rest
	fault   fault      // nil: none
	seen    []seenRequest
	waiting int // exchanges that wait
	revoked bool
}

// seenRequest is a request of the worker, and what it reports.
type seenRequest struct {
	*http.Request
	at   time.Time
	path string // below apiPath
	body struct {
		Running []struct {
			Token   store.ID
			Started bool
		}
		Reports []struct{ Token store.ID }
		Wait    float64 `json:"wait_s"`
	}
}

// ServeHTTP observes a request and passes it on, or injects the fault.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := seenRequest{Request: r, at: time.Now(), path: strings.TrimPrefix(r.URL.Path, apiPath)}
	if r.Method == http.MethodPost {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			problem.New(problem.InvalidRequest, "the body cannot be read: %v", err).Write(w, r)
			return
		}
		_ = json.Unmarshal(text, &seen.body) // the coordinator says what is wrong
		r.Body = io.NopCloser(bytes.NewReader(text))
	}
	isWait := seen.path == "/exchange" && seen.body.Wait > 0
	f.mu.Lock()
	f.seen = append(f.seen, seen)
	inject := f.fault
	f.mu.Unlock()
	if isWait {
		f.countWaiting(1)
		defer f.countWaiting(-1)
	}
	next := http.StripPrefix(apiPath, f.next)
	if inject == nil {
		next.ServeHTTP(w, r)
		return
	}
	inject(w, seen, next)
}

func (f *front) countWaiting(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting += n
}

func (f *front) isWaiting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting > 0
}

// inject sets the fault; nil ends it.
func (f *front) inject(next fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = next
}

func (f *front) setRevoked(revoked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revoked = revoked
}

func (f *front) isRevoked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revoked
}

// count is the number of requests so far for which is returns true.
func (f *front) count(is func(seenRequest) bool) (n int) {
	for _, r := range f.requests() {
		if is(r) {
			n++
		}
	}
	return n
}

func (f *front) requests() []seenRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// forget begins the list of requests again.
func (f *front) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = nil
}

// reports says whether a request reports the outcome of a claim.
func (r seenRequest) reports(token store.ID) bool {
	for _, report := range r.body.Reports {
		if report.Token == token {
			return true
		}
	}
	return false
}

// runs says whether a heartbeat names a claim as started.
func (r seenRequest) runs(token store.ID) bool {
	for _, claim := range r.body.Running {
		if claim.Token == token && claim.Started {
			return true
		}
	}
	return false
}

// writes says whether a request changes something for a claim.
func (r seenRequest) writes(token store.ID) bool {
	return r.reports(token) || r.Method == http.MethodPut && strings.HasPrefix(r.path, "/claims/"+token.String()+"/output/")
}

// trigger is a fault that happens once.
type trigger struct {
	mu    sync.Mutex // guards fired
	fired bool
}

// fire returns true the first time that condition is true.
func (t *trigger) fire(condition bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := condition && !t.fired
	t.fired = t.fired || first
	return first
}

func (t *trigger) hasFired() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fired
}

// once makes a fault of the first request for which is returns true; the others pass.
func (t *trigger) once(is func(seenRequest) bool, do fault) fault {
	return func(w http.ResponseWriter, r seenRequest, next http.Handler) {
		if !t.fire(is(r)) {
			next.ServeHTTP(w, r.Request)
			return
		}
		do(w, r, next)
	}
}

// cutBody lets half of a body arrive, and closes the connection without an answer.
func cutBody(_ http.ResponseWriter, r seenRequest, next http.Handler) {
	half := io.LimitReader(r.Body, r.ContentLength/2)
	r.Body = io.NopCloser(io.MultiReader(half, brokenReader{}))
	next.ServeHTTP(&buffer{header: make(http.Header)}, r.Request)
	panic(http.ErrAbortHandler)
}

// brokenReader is the end of a connection in the middle of a body.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// cutAnswer closes the connection after so many bytes of the answer.
func cutAnswer(n int) fault {
	return func(w http.ResponseWriter, r seenRequest, next http.Handler) {
		next.ServeHTTP(&cutWriter{w, n}, r.Request)
	}
}

// cutWriter closes the connection after n bytes.
type cutWriter struct {
	http.ResponseWriter
	n int
}

func (w *cutWriter) Write(b []byte) (int, error) {
	if len(b) >= w.n {
		_, _ = w.ResponseWriter.Write(b[:w.n])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	w.n -= len(b)
	return w.ResponseWriter.Write(b)
}

// buffer keeps an answer.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffer) Header() http.Header                { return b.header }
func (b *buffer) WriteHeader(status int)             { b.status = status }
func (b *buffer) Write(text []byte) (n int, _ error) { return b.body.Write(text) }

// loseClaims closes the connection instead of the first answer with claims.
func (t *trigger) loseClaims(w http.ResponseWriter, r seenRequest, next http.Handler) {
	b := &buffer{header: make(http.Header), status: http.StatusOK}
	next.ServeHTTP(b, r.Request)
	var answer struct{ Claims []json.RawMessage }
	if t.fire(r.path == "/exchange" && json.Unmarshal(b.body.Bytes(), &answer) == nil && len(answer.Claims) > 0) {
		panic(http.ErrAbortHandler)
	}
	for name, values := range b.header {
		w.Header()[name] = values
	}
	w.WriteHeader(b.status)
	_, _ = w.Write(b.body.Bytes())
}

// unavailable answers every request with 503.
func unavailable(w http.ResponseWriter, r seenRequest, _ http.Handler) {
	problem.New(problem.Unavailable, "this coordinator has a fault for a test").After(time.Second).Write(w, r.Request)
}

// otherVersion is a coordinator of another version of the protocol.
func otherVersion(w http.ResponseWriter, r seenRequest, _ http.Handler) {
	switch r.path {
	case "/pipeline":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"protocol": 99, "pipeline": "conformance", "stages": [{"name": "work", "needs": []}]}`)
	case "/register":
		problem.New(problem.ProtocolVersion, "this coordinator speaks version 99 of the worker protocol").Write(w, r.Request)
	default:
		problem.New(problem.WorkerUnknown, "the worker is not registered").Write(w, r.Request)
	}
}
