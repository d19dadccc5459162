package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

const (
	formMost = 8 << 10 // bytes of the login's form
	// pageFormMost bounds what the dashboard's forms have. A form in parts would
	// otherwise be kept in memory and on disk as it comes, also of somebody unknown.
	pageFormMost = 256 << 10
)

// login takes a secret or an API key, in the field secret of a form, and begins a
// session. A browser is sent on to the page that it wanted, or back to the form.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formMost)
	if err := r.ParseForm(); err != nil {
		s.fail(w, r, refuse(kindRequest, "the form cannot be read"))
		return
	}
	to := s.nextPage(r.PostForm.Get("next"))
	_, err := s.o.Guard.Login(w, r, r.PostForm.Get("secret"))
	if !wantsPage(r) {
		if err != nil {
			s.fail(w, r, err)
			return
		}
		answer{status: http.StatusNoContent}.write(w)
		return
	}
	var limited *access.Limited
	switch {
	case err == nil:
		http.Redirect(w, r, to, http.StatusSeeOther)
	case errors.As(err, &limited):
		s.backToLogin(w, r, url.Values{"failed": {"limited"}, "wait": {strconv.Itoa(int(limited.After.Seconds()) + 1)}}, to)
	case errors.Is(err, access.ErrWrong):
		s.backToLogin(w, r, url.Values{"failed": {"wrong"}}, to)
	default:
		s.fail(w, r, err)
	}
}

func (s *Server) backToLogin(w http.ResponseWriter, r *http.Request, values url.Values, to string) {
	if to != s.o.BasePath+"/" {
		values.Set("next", to)
	}
	address := s.o.BasePath + "/login"
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// nextPage is where a login leads to: a page of ours, whatever a link says.
func (s *Server) nextPage(next string) string {
	home := s.o.BasePath + "/"
	if !strings.HasPrefix(next, home) || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\t\r\n") {
		return home
	}
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Path == s.o.BasePath+"/login" {
		return home
	}
	if path.Clean(u.Path) != strings.TrimRight(u.Path, "/") && u.Path != "/" {
		return home // up and out of ours, where others may send on whom they like
	}
	return u.RequestURI()
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	s.o.Guard.Logout(w, r)
	if wantsPage(r) {
		s.backToLogin(w, r, url.Values{}, s.o.BasePath+"/")
		return
	}
	answer{status: http.StatusNoContent}.write(w)
}

// dashboard lets those in who may look, and sends a browser's user to the login.
// It gets paths without the base.
func (s *Server) dashboard() http.Handler {
	page := s.limited(requestWait, http.HandlerFunc(s.showPage))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, pageFormMost)
		err := access.Check(r.Context(), access.Read)
		if err == nil && !open(r) {
			page.ServeHTTP(w, r)
			return
		}
		if open(r) {
			s.o.Dashboard.ServeHTTP(w, r)
			return
		}
		known := errors.Is(err, access.ErrUnknown) || errors.Is(err, access.ErrWrong)
		if !known || !wantsPage(r) {
			s.fail(w, r, err)
			return
		}
		to := s.o.BasePath + "/"
		if r.Method == http.MethodGet {
			to = s.nextPage(s.o.BasePath + r.URL.RequestURI())
		}
		s.backToLogin(w, r, url.Values{}, to)
	})
}

// showPage has the dashboard answer somebody who may look. A page that follows what
// happens takes the place of a stream.
func (s *Server) showPage(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/live" {
		who := access.From(r.Context()).Name
		if err := s.streams.enter(who); err != nil {
			s.fail(w, r, err)
			return
		}
		defer s.streams.leave(who)
	}
	s.whileWelcome(w, r)
}

// comeBack is when a page that stays open has to ask anew: only with the answer's
// headers can its session be made longer.
const comeBack = 6 * time.Hour

// whileWelcome has the dashboard answer, and ends its request when the principal is
// none any more: a page follows what happens for as long as it is open.
func (s *Server) whileWelcome(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() {
		tick := time.NewTicker(askAgain)
		defer tick.Stop()
		for began := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if time.Since(began) >= comeBack || !s.isStill(ctx) {
				cancel()
			}
		}
	})
	s.o.Dashboard.ServeHTTP(w, r.WithContext(ctx))
}

// open reports whether a page, or what it is made of, is for everybody.
func open(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return r.URL.Path == "/login" || strings.HasPrefix(r.URL.Path, "/assets/")
	case http.MethodPost:
		return r.URL.Path == "/theme" // a cookie, and nothing else
	}
	return false
}
