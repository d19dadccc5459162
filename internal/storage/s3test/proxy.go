package s3test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Fault is something that goes wrong with a request.
type Fault string

// The faults.
const (
	CutBefore   Fault = "cut before"       // the server never gets the request
	CutRequest  Fault = "cut request"      // the server gets half of the body
	CutAfter    Fault = "cut after"        // the server does it, the answer is lost
	Truncate    Fault = "truncated answer" // half of the answer's body arrives
	ServerError Fault = "500"
	SlowDown    Fault = "503 SlowDown"
	NoAnswer    Fault = "no answer" // the server does it, the client waits until it gives up
	Full        Fault = "full"      // a quota that is used up
)

// Faults lists the faults after which a repeated operation must succeed.
var Faults = []Fault{CutBefore, CutRequest, CutAfter, Truncate, ServerError, SlowDown, NoAnswer}

// Proxy passes requests to a server, except for the faulty ones.
type Proxy struct {
	Endpoint string // URL

	reverse *httputil.ReverseProxy

	mu            sync.Mutex // of the next fields
	idle          *sync.Cond // no request is active
	active        int        // requests; a WaitGroup would not allow those that come during Wait
	number        int
	before, after func(number int, r *http.Request)
	fault         func(number int, r *http.Request) Fault

	sent     atomic.Int64 // bytes of bodies of requests
	received atomic.Int64 // bytes of bodies of answers
}

// Inject sets the function that decides on the fault of a request, counted from 1 since Reset:
// "" for none. It may be nil.
func (p *Proxy) Inject(fault func(number int, r *http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// Observe sets the functions that are called before and after every request. They may be nil.
func (p *Proxy) Observe(before, after func(number int, r *http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.after = before, after
}

// NewProxy starts a proxy that ends with the test.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{}
	p.idle = sync.NewCond(&p.mu)
	p.reverse = &httputil.ReverseProxy{
		Transport: s.transport(t),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.Endpoint = server.URL
	return p
}

// Reset counts requests and bytes from 0, and returns the requests so far.
func (p *Proxy) Reset() (requests int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	requests, p.number = p.number, 0
	p.sent.Store(0)
	p.received.Store(0)
	return requests
}

// Wait waits for requests whose client has given up.
func (p *Proxy) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.active > 0 {
		p.idle.Wait()
	}
}

func (p *Proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active--; p.active == 0 {
		p.idle.Broadcast()
	}
}

// Bytes returns the bytes of bodies since Reset, as far as the proxy has seen them.
func (p *Proxy) Bytes() (sent, received int64) { return p.sent.Load(), p.received.Load() }

// ServeHTTP passes a request on, or injects its fault.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer p.end()
	p.mu.Lock()
	p.active++
	p.number++
	number, before, after, inject := p.number, p.before, p.after, p.fault
	p.mu.Unlock()
	if before != nil {
		before(number, r)
	}
	if after != nil {
		defer after(number, r)
	}
	r.Body = &countedBody{ReadCloser: r.Body, count: &p.sent, limit: -1}
	out := &countedWriter{ResponseWriter: w, count: &p.received}
	fault := Fault("")
	if inject != nil {
		fault = inject(number, r)
	}
	p.serve(out, r, fault)
}

// serve cuts the connection by a panic, as httputil.ReverseProxy does.
func (p *Proxy) serve(w *countedWriter, r *http.Request, fault Fault) {
	switch fault {
	case CutBefore:
		panic(http.ErrAbortHandler)
	case CutRequest:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		r.Body.(*countedBody).limit = r.ContentLength / 2
		p.reverse.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		panic(http.ErrAbortHandler)
	case CutAfter:
		p.reverse.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case Truncate:
		answer := httptest.NewRecorder()
		p.reverse.ServeHTTP(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		body := answer.Body.Bytes()
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	case ServerError:
		refuse(w, r, http.StatusInternalServerError, "InternalError")
	case SlowDown:
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
	case Full:
		refuse(w, r, http.StatusForbidden, "QuotaExceeded")
	case NoAnswer:
		p.reverse.ServeHTTP(httptest.NewRecorder(), r)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	default:
		p.reverse.ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>"+code+"</Message></Error>")
}

// countedBody counts what is read, and fails after limit bytes unless that is negative.
type countedBody struct {
	io.ReadCloser
	count *atomic.Int64
	limit int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	if b.limit == 0 {
		return 0, errors.New("cut")
	}
	if b.limit > 0 {
		p = p[:min(int64(len(p)), b.limit)]
	}
	n, err := b.ReadCloser.Read(p)
	b.count.Add(int64(n))
	if b.limit > 0 {
		b.limit -= int64(n)
	}
	return n, err
}

// countedWriter counts what is written.
type countedWriter struct {
	http.ResponseWriter
	count *atomic.Int64
}

func (w *countedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.count.Add(int64(n))
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
