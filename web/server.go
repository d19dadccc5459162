package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/readcache"
	"github.com/cuelight/cuelight/web/embed"
)

// contentSecurityPolicy applies to responses that set none of their own, as the dashboard's pages do.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"media-src 'self' blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// Server serves one pipeline. Create it with [New].
type Server struct {
	player         *embed.Player
	opts           Options
	routes         []route
	handler        http.Handler
	openAPI        []byte
	stageStats     readcache.Cache[stagesBody]
	streamLimit    streamLimit
	requestLimit   *requestLimit
	eventCache     eventCache
	activeRequests atomic.Int64

	// streamContext is done when the server drains.
	streamContext context.Context
	endStreams    context.CancelFunc
}

// New creates a server. It opens no file and no connection.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	s := &Server{
		opts: o, stageStats: readcache.Cache[stagesBody]{MaxAge: stageStatsMaxAge, Timeout: handlerTimeout},
		requestLimit: newRequestLimit(o.MaxRequestsPerPrincipal),
		streamLimit: streamLimit{
			total: o.MaxStreams, perPrincipal: o.MaxStreamsPerPrincipal, byPrincipal: make(map[string]int),
		},
	}
	if s.player, err = embed.New(o.BasePath + playerPath); err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	s.streamContext, s.endStreams = context.WithCancel(context.Background())
	s.routes = s.buildRoutes()
	if s.openAPI, err = withServerURL(openAPI, cmp.Or(o.BasePath, "/")); err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	csrf := http.NewCrossOriginProtection()
	if o.PublicURL != "" {
		if err := CheckPublicURL(o.PublicURL); err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
		u, err := url.Parse(o.PublicURL)
		if err == nil {
			err = csrf.AddTrustedOrigin(u.Scheme + "://" + u.Host)
		}
		if err != nil {
			return nil, fmt.Errorf("web: public URL: %w", err)
		}
	}
	csrf.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.writeError(w, r, problem.New(problem.CrossOrigin, "pages of other sites cannot change anything here"))
	}))
	s.handler = withSecurityHeaders(o.Guard.Identify(withMiddleware(o.Wrap, s.observeRequests(csrf.Handler(s.newMux())))))
	return s, nil
}

// Handler returns the handler of all routes.
func (s *Server) Handler() http.Handler { return s.handler }

// Drain ends all streams and refuses new ones. Clients reconnect, to the process that then serves the address.
func (s *Server) Drain() { s.endStreams() }

// Streams returns how many streams of events are open, including those of the dashboard's pages.
func (s *Server) Streams() int { return s.streamLimit.count() }

// UploadsPath returns the path of Options.Uploads on a server with a base path.
func UploadsPath(basePath string) string { return basePath + apiPath + "/uploads/" }

// withMiddleware wraps the handler of requests with a principal. The wrapper may pass on another request, so it
// must be outside of observeRequests, which reads the route of its own.
func withMiddleware(wrap func(http.Handler) http.Handler, h http.Handler) http.Handler {
	wrapped := wrap(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if access.PrincipalOf(r.Context()).Scope == access.None {
			h.ServeHTTP(w, r)
			return
		}
		wrapped.ServeHTTP(w, r)
	})
}

func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentSecurityPolicy)
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

// observeRequests reports each request when it ends, and limits how long its body may take. Handlers that accept
// longer bodies set other deadlines.
func (s *Server) observeRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.activeRequests.Add(1)
		rec := newResponseWriter(w)
		if r.ContentLength != 0 {
			_ = rec.control.SetReadDeadline(rec.start.Add(bodyTimeout))
		}
		defer func() {
			defer s.activeRequests.Add(-1)
			rec.describe(r)
			panicked := recover()
			if panicked != nil {
				s.reportPanic(rec, r, panicked)
			}
			s.observe(rec)
			if panicked != nil {
				panic(http.ErrAbortHandler) // makes net/http cut the connection: the response is incomplete
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

// observe reports a request that has ended.
func (s *Server) observe(rec *responseWriter) {
	rec.request.Status, rec.request.Duration = cmp.Or(rec.status, http.StatusOK), time.Since(rec.start)
	rec.request.Bytes = rec.bytes
	rec.request.Stream = strings.HasPrefix(rec.Header().Get("Content-Type"), eventStreamType)
	s.opts.Observe(rec.request)
}

// reportPanic reports a handler that panicked, unless it aborted on purpose. If no response has begun, it writes one to
// r.
func (s *Server) reportPanic(rec *responseWriter, r *http.Request, value any) {
	if value == http.ErrAbortHandler {
		return
	}
	s.opts.OnError(rec.request.Route, fmt.Errorf("panic: %v\n%s", value, debug.Stack()))
	if rec.status == 0 {
		problem.New(problem.Internal, internalDetail).Write(rec, r)
		rec.Flush()
	}
}

// acceptsHTML reports whether a browser requests a page.
func acceptsHTML(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// CheckPublicURL checks Options.PublicURL.
func CheckPublicURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.HasSuffix(text, "/") ||
		strings.ContainsAny(text, "?#") {
		return fmt.Errorf("public URL %q must be an address such as https://media.example, without a slash at its end", text)
	}
	return nil
}
