package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

const (
	// maxPublicForm limits the forms of clients that are not authenticated. Without it, a multipart form would be kept in memory
	// and on disk.
	maxPublicForm = 256 << 10
	// maxPageDuration is when an open page must send a new request: only the headers of a new response can extend its
	// session.
	maxPageDuration = 6 * time.Hour
)

// dashboardHandler serves pages to principals that may read, and redirects other browsers to the login. Its requests
// have paths without the base path.
func (s *Server) dashboardHandler() http.Handler {
	page := s.limitRequests(requestWait, http.HandlerFunc(s.servePage))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isPublicPage(r) {
			r.Body = http.MaxBytesReader(w, r.Body, maxPublicForm)
			s.opts.Dashboard.ServeHTTP(w, r)
			return
		}
		err := access.Check(r.Context(), access.Read)
		isLoginNeeded := errors.Is(err, access.ErrNoCredentials) || errors.Is(err, access.ErrInvalidCredentials)
		switch {
		case err == nil:
			page.ServeHTTP(w, r)
		case isLoginNeeded && acceptsHTML(r):
			next := s.opts.BasePath + "/"
			if r.Method == http.MethodGet {
				next = s.nextPage(s.opts.BasePath + r.URL.RequestURI())
			}
			s.redirectToLogin(w, r, url.Values{}, next)
		default:
			s.writeError(w, r, err)
		}
	})
}

// servePage serves a page. The request by which an open page gets updates counts as a stream.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/live" {
		principal := access.PrincipalOf(r.Context()).Name
		if err := s.streamLimit.acquire(principal); err != nil {
			s.writeError(w, r, err)
			return
		}
		defer s.streamLimit.release(principal)
	}
	s.servePageWhileValid(w, r)
}

// servePageWhileValid cancels the request when its principal becomes invalid: a request for updates lasts as long as
// the page is open.
func (s *Server) servePageWhileValid(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	var checks sync.WaitGroup
	defer checks.Wait()
	defer cancel()
	checks.Go(func() {
		tick := time.NewTicker(principalCheckInterval)
		defer tick.Stop()
		for start := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if time.Since(start) >= maxPageDuration || !s.isPrincipalValid(ctx) {
				cancel()
			}
		}
	})
	s.opts.Dashboard.ServeHTTP(w, r.WithContext(ctx))
}

// isPublicPage reports whether a request of the dashboard needs no principal.
func isPublicPage(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return r.URL.Path == "/login" || strings.HasPrefix(r.URL.Path, "/assets/")
	case http.MethodPost:
		return r.URL.Path == "/theme" // sets a cookie
	}
	return false
}
