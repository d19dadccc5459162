package web

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Routes are those of a server, METHOD PATH.
func Routes(s *Server) (routes []string) {
	for _, r := range s.routes {
		routes = append(routes, r.method+" "+r.path)
	}
	return routes
}

// What tests hand garbage to.
var (
	PublishedName = publishedName
	CheckJSON     = checkJSON
	IsNotThere    = isNotThere
)

// NextPage is where a login leads to.
func NextPage(base, next string) string {
	s := &Server{o: Options{BasePath: base}}
	return s.nextPage(next)
}

// Place reads the id of an event.
func Place(text string) (n int64, given, ok bool) { return parsePlace(text) }

// EventTypes reads a choice of types.
func EventTypes(text string) error {
	_, err := eventTypes(text)
	return err
}

// TaskQuery reads a choice of tasks.
func TaskQuery(r *http.Request) (store.Filter, int, error) {
	p := query(r, append(filterNames, "after", "limit")...)
	given, limit := p.filter(), p.limit()
	p.id("after")
	f, err := given.store()
	if p.err != nil {
		err = p.err
	}
	return f, limit, err
}

// ReadSubmissions reads the body of a submission.
func ReadSubmissions(text []byte) (out []store.Submission, err error) {
	var in submissions
	if err := unmarshal(text, &in); err != nil {
		return nil, err
	}
	all, _, err := in.all()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		sub, err := s.store()
		if err != nil {
			return nil, err
		}
		out = append(out, sub)
	}
	return out, nil
}

// NewResponse wraps what an answer is written to.
func NewResponse(w http.ResponseWriter) http.ResponseWriter { return newResponse(w) }

// Certificate reads one from files, and again once so much time has passed.
func Certificate(certFile, keyFile string, every time.Duration, trouble func(error)) func(context.Context) (*tls.Certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, every: every, trouble: trouble}
	return c.get
}

// NewRequestLimit bounds the requests of each principal.
func NewRequestLimit(each int) func(ctx context.Context, who string, wait time.Duration) (release func(), err error) {
	return newRequestLimit(each).enter
}
