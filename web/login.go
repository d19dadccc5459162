package web

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/problem"
)

const maxLoginForm = 8 << 10 // bytes

// login takes a secret or an API key from the form field secret and starts a session. It redirects a browser to the
// page it wanted, or back to the form.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLoginForm)
	if err := r.ParseForm(); err != nil {
		s.writeError(w, r, problem.New(problem.InvalidRequest, "the form is invalid"))
		return
	}
	next := s.nextPage(r.PostForm.Get("next"))
	_, err := s.opts.Guard.Login(w, r, r.PostForm.Get("secret"))
	var limited *access.TooManyFailuresError
	switch {
	case err != nil && !acceptsHTML(r):
		s.writeError(w, r, err)
	case err == nil && !acceptsHTML(r):
		s.respond(w, r, jsonResponse{status: http.StatusNoContent})
	case err == nil:
		http.Redirect(w, r, next, http.StatusSeeOther)
	case errors.As(err, &limited):
		wait := strconv.Itoa(int(limited.After.Seconds()) + 1)
		s.redirectToLogin(w, r, url.Values{"failed": {"limited"}, "wait": {wait}}, next)
	case errors.Is(err, access.ErrInvalidCredentials):
		s.redirectToLogin(w, r, url.Values{"failed": {"wrong"}}, next)
	default:
		s.writeError(w, r, err)
	}
}

func (s *Server) redirectToLogin(w http.ResponseWriter, r *http.Request, values url.Values, next string) {
	if next != s.opts.BasePath+"/" {
		values.Set("next", next)
	}
	address := s.opts.BasePath + "/login"
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// nextPage returns the page to open after a login: the requested one if it is a page of this server.
func (s *Server) nextPage(next string) string {
	home := s.opts.BasePath + "/"
	if !strings.HasPrefix(next, home) || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\t\r\n") {
		return home
	}
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Path == s.opts.BasePath+"/login" {
		return home
	}
	if path.Clean(u.Path) != strings.TrimRight(u.Path, "/") && u.Path != "/" {
		return home // ".." could leave the base path, to a page of another program
	}
	return u.RequestURI()
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	s.opts.Guard.Logout(w, r)
	if acceptsHTML(r) {
		s.redirectToLogin(w, r, url.Values{}, s.opts.BasePath+"/")
		return
	}
	s.respond(w, r, jsonResponse{status: http.StatusNoContent})
}
