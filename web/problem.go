package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

// ProblemTypes is the prefix of the types of problems.
const ProblemTypes = "urn:cuelight:problem:"

const (
	// defaultRetryAfter is the Retry-After of errors that suggest no better one.
	defaultRetryAfter = 5 * time.Second
	internalDetail    = "an internal error occurred; the server's log has the details"
	unavailableDetail = "the database is not available; try again later"
)

// problem is an error response (RFC 9457). Its type is ProblemTypes and the kind.
type problem struct {
	kind       kind
	detail     string
	retryAfter time.Duration
}

func (p *problem) Error() string { return p.detail }

// kind is a type of problem. Kinds are part of the API and do not change.
type kind string

const (
	kindInvalidRequest       kind = "invalid-request"
	kindUnauthenticated      kind = "unauthenticated"
	kindForbidden            kind = "forbidden"
	kindCrossOrigin          kind = "cross-origin"
	kindNotFound             kind = "not-found"
	kindMethodNotAllowed     kind = "method-not-allowed"
	kindOverridden           kind = "overridden"
	kindRequestIDTaken       kind = "request-id-taken"
	kindEventsGone           kind = "events-gone"
	kindTooLarge             kind = "too-large"
	kindUnsupportedMediaType kind = "unsupported-media-type"
	kindMisdirected          kind = "misdirected"
	kindInvalid              kind = "invalid"
	kindTooManyFailures      kind = "too-many-failures"
	kindTooManyStreams       kind = "too-many-streams"
	kindTooManyRequests      kind = "too-many-requests"
	kindInternal             kind = "internal"
	kindUnavailable          kind = "unavailable"
)

var kinds = map[kind]struct {
	status int
	title  string
}{
	kindInvalidRequest:       {http.StatusBadRequest, "Invalid request"},
	kindUnauthenticated:      {http.StatusUnauthorized, "Authentication required"},
	kindForbidden:            {http.StatusForbidden, "Not allowed"},
	kindCrossOrigin:          {http.StatusForbidden, "Cross-origin request"},
	kindNotFound:             {http.StatusNotFound, "Not found"},
	kindMethodNotAllowed:     {http.StatusMethodNotAllowed, "Method not allowed"},
	kindOverridden:           {http.StatusConflict, "The task is overridden by another task"},
	kindRequestIDTaken:       {http.StatusConflict, "The request id belongs to a task with another source"},
	kindEventsGone:           {http.StatusGone, "The events after this id are deleted"},
	kindTooLarge:             {http.StatusRequestEntityTooLarge, "The request is too large"},
	kindUnsupportedMediaType: {http.StatusUnsupportedMediaType, "The body must be JSON"},
	kindMisdirected:          {http.StatusMisdirectedRequest, "The host name is not of this server"},
	kindInvalid:              {http.StatusUnprocessableEntity, "Invalid values"},
	kindTooManyFailures:      {http.StatusTooManyRequests, "Too many failed logins"},
	kindTooManyStreams:       {http.StatusTooManyRequests, "Too many open streams"},
	kindTooManyRequests:      {http.StatusTooManyRequests, "Too many concurrent requests"},
	kindInternal:             {http.StatusInternalServerError, "Internal error"},
	kindUnavailable:          {http.StatusServiceUnavailable, "Temporarily unavailable"},
}

// knownErrors are errors whose text a client may see, and their kinds.
var knownErrors = []struct {
	err  error
	kind kind
}{
	{access.ErrUnknown, kindUnauthenticated},
	{access.ErrWrong, kindUnauthenticated},
	{access.ErrScope, kindForbidden},
	{access.ErrHost, kindMisdirected},
	{store.ErrNotFound, kindNotFound},
	{store.ErrWorkerUnknown, kindNotFound},
	{webhook.ErrNotFound, kindNotFound},
	{store.ErrOverridden, kindOverridden},
	{store.ErrRequestTaken, kindRequestIDTaken},
	{store.ErrNoStage, kindInvalid},
	{store.ErrInvalid, kindInvalid},
	{access.ErrInvalidKey, kindInvalid},
	{webhook.ErrInvalid, kindInvalid},
	{store.ErrEventsGone, kindEventsGone},
}

// ProblemTitle returns the title of a problem, given the last part of its type. It returns "" for the problems of
// other packages.
func ProblemTitle(name string) string { return kinds[kind(name)].title }

func newProblem(k kind, format string, args ...any) *problem {
	return &problem{kind: k, detail: fmt.Sprintf(format, args...)}
}

// problemOf returns what a client may know of an error.
func problemOf(err error) *problem {
	var p *problem
	var limited *access.Limited
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &limited):
		return &problem{kindTooManyFailures, "too many failed logins from this address; try again later", limited.After}
	case errors.As(err, &large):
		return newProblem(kindTooLarge, "the body is larger than %d bytes, the limit", large.Limit)
	}
	for _, known := range knownErrors {
		if errors.Is(err, known.err) {
			return &problem{kind: known.kind, detail: err.Error()}
		}
	}
	if isUnavailable(err) {
		return &problem{kindUnavailable, unavailableDetail, defaultRetryAfter}
	}
	return newProblem(kindInternal, internalDetail)
}

// isUnavailable reports whether an error says that the database is unavailable, and not that one statement failed.
func isUnavailable(err error) bool {
	var network net.Error
	var connect *pgconn.ConnectError
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code[:min(2, len(pg.Code))] {
		// Classes of the PostgreSQL manual's appendix A: connection exception, insufficient resources, operator
		// intervention, invalid transaction state (read-only server), unknown database, transaction rollback.
		case "08", "53", "57", "25", "3D", "40":
			return true
		}
		return errors.Is(err, store.ErrNoSchema)
	}
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, store.ErrNoSchema) || pgconn.SafeToRetry(err)
}

// writeError responds with an error, and reports it if it is not the client's.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if kinds[p.kind].status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.opts.OnError(r.Pattern, err)
	}
	writeProblem(w, p)
}

func writeProblem(w http.ResponseWriter, p *problem) {
	k := kinds[p.kind]
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Etag")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	if p.kind == kindUnauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="cuelight"`)
	}
	var body bytes.Buffer // writing JSON to it cannot fail
	_ = writeJSON(&body, struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{ProblemTypes + string(p.kind), k.title, k.status, strings.ToValidUTF8(p.detail, "\uFFFD")})
	h.Set("Content-Length", strconv.Itoa(body.Len())) // so that the response is complete even if the handler panics
	w.WriteHeader(k.status)
	_, _ = w.Write(body.Bytes())
}
