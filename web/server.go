package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

// Server serves one pipeline. Make one with [New].
type Server struct {
	o        Options
	routes   []route
	handler  http.Handler
	openAPI  []byte
	strip    memo[stagesBody]
	streams  streams
	frames   frames
	requests *requestLimit
	// underWay is how many requests are.
	underWay atomic.Int64

	// live ends when streams are to close.
	live  context.Context
	drain context.CancelFunc
}

// New makes a server. It reads and opens nothing but what is in this program.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	s := &Server{
		o: o, streams: streams{most: o.Streams, each: o.StreamsEach, by: make(map[string]int)}, requests: newRequestLimit(o.RequestsEach),
	}
	s.live, s.drain = context.WithCancel(context.Background())
	s.routes = s.routing()
	if s.openAPI, err = s.describe(); err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	cross := http.NewCrossOriginProtection()
	for _, origin := range o.Origins {
		if err := cross.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("web: origin %q: %w", origin, err)
		}
	}
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, refuse(kindOrigin, "pages of other sites cannot change anything here"))
	}))
	s.handler = secure(o.Guard.Identify(wrapped(o.Wrap, s.observe(cross.Handler(s.mux())))))
	return s, nil
}

// wrapped wraps what is served to those who are known. It is outside of what hears
// the route: what is wrapped around may hand on another request.
func wrapped(wrap func(http.Handler) http.Handler, h http.Handler) http.Handler {
	around := wrap(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if access.From(r.Context()).Scope == access.None {
			h.ServeHTTP(w, r)
			return
		}
		around.ServeHTTP(w, r)
	})
}

// Handler is all of it.
func (s *Server) Handler() http.Handler { return s.handler }

// Drain closes all streams, and lets none be opened. Their clients come back to
// whoever is there then.
func (s *Server) Drain() { s.drain() }

// Streams is how many streams of events are open, those of the dashboard's pages
// among them.
func (s *Server) Streams() int { return s.streams.count() }

// UploadsPath is what Options.Uploads of a server with that base path is asked
// for.
func UploadsPath(basePath string) string { return basePath + api + "/uploads/" }

// PublishedPath is the address of a file in the published directory, by its path
// in there.
func PublishedPath(basePath, name string) string { return basePath + api + "/published/" + name }

// policy is what a page may do that does not say otherwise itself: those of the
// API are no pages.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; " +
	"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// observe tells of requests, whatever becomes of them, and bounds how long a body
// may take to come; who takes bodies for longer sets other deadlines.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		s.underWay.Add(1)
		defer s.underWay.Add(-1)
		rec := newResponse(w)
		if r.ContentLength != 0 {
			_ = rec.control.SetReadDeadline(began.Add(readIn))
		}
		defer func() {
			what := recover()
			if what != nil {
				s.panicked(rec, r, what)
			}
			status := rec.status
			if status == 0 {
				status = http.StatusOK
			}
			s.o.Observe(Request{
				Method: r.Method, Route: r.Pattern, Who: access.From(r.Context()).Name,
				Status: status, Bytes: rec.bytes, Took: time.Since(began),
				Stream: strings.HasPrefix(rec.Header().Get("Content-Type"), eventStream),
			})
			if what != nil {
				panic(http.ErrAbortHandler) // what was sent is not all
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

// panicked tells of a handler that did not end as it should. One that aborts on
// purpose has its reasons.
func (s *Server) panicked(rec *response, r *http.Request, what any) {
	if what == http.ErrAbortHandler {
		return
	}
	s.o.Trouble(r.Pattern, fmt.Errorf("panic: %v\n%s", what, debug.Stack()))
	if rec.status == 0 {
		writeProblem(rec, &problem{kind: kindInternal, detail: "what it was is in the log"})
		rec.Flush()
	}
}

// describe is openapi.json as this server is mounted.
func (s *Server) describe() ([]byte, error) {
	return withServer(openAPI, cmp.Or(s.o.BasePath, "/"))
}

// wantsPage reports whether a browser asks for a page.
func wantsPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}
