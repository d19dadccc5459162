package web

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/jsonbody"
	"github.com/cuelight/cuelight/store"
)

// Routes lists the routes of a server as METHOD PATH.
func Routes(s *Server) (routes []string) {
	for _, r := range s.routes {
		routes = append(routes, r.method+" "+r.path)
	}
	return routes
}

// Functions that fuzz tests and tables call directly.
var (
	PublishedName  = publishedName
	IsFileNotFound = isFileNotFound
	ParseEventID   = parseEventID
)

// NextPage returns the page after a login to a server with a base path.
func NextPage(base, next string) string {
	s := &Server{opts: Options{BasePath: base}}
	return s.nextPage(next)
}

// ParseEventTypes reads a list of event types.
func ParseEventTypes(text string) error {
	_, err := parseEventTypes(text)
	return err
}

// ParseTaskQuery reads the query of a list of tasks.
func ParseTaskQuery(r *http.Request) (store.Filter, int, error) {
	p := parseQuery(r, append(filterNames, "after", "limit")...)
	conditions, limit := p.filter(), p.limit()
	p.id("after")
	f, err := conditions.toStoreFilter()
	if p.err != nil {
		err = p.err
	}
	return f, limit, err
}

// ReadSubmissions reads the body of a submission.
func ReadSubmissions(text []byte) (out []store.Submission, err error) {
	var in submitRequest
	if err := jsonbody.Decode(text, &in); err != nil {
		return nil, err
	}
	list, _, err := in.list()
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		sub, err := s.toStoreSubmission()
		if err != nil {
			return nil, err
		}
		out = append(out, sub)
	}
	return out, nil
}

// NewResponseWriter wraps the writer of a response.
func NewResponseWriter(w http.ResponseWriter) http.ResponseWriter { return newResponseWriter(w) }

// Certificate reads a certificate from files, and again when the interval has passed.
func Certificate(
	certFile, keyFile string, interval time.Duration, onError func(error),
) func() (*tls.Certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, interval: interval, onError: onError}
	return c.get
}

// NewRequestLimit returns the acquire function of a limit of requests per principal.
func NewRequestLimit(
	n int,
) func(ctx context.Context, principal string, wait time.Duration) (release func(), err error) {
	return newRequestLimit(n).acquire
}
