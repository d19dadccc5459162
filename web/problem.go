package web

import (
	"bytes"
	"context"
	"encoding/json"
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

// problem is an error as a client sees it, after RFC 9457. Its type is the kind
// as a URN.
type problem struct {
	kind   kind
	detail string
	after  time.Duration // when to try again
}

func (p *problem) Error() string { return p.detail }

// kind is a type of problem. Kinds are part of the API: they do not change.
type kind string

// ProblemTypes is what the types of problems begin with.
const ProblemTypes = "urn:cuelight:problem:"

// The kinds, each with its status and title below.
const (
	kindRequest     kind = "invalid-request"
	kindUnknown     kind = "unauthenticated"
	kindScope       kind = "forbidden"
	kindOrigin      kind = "cross-origin"
	kindNotFound    kind = "not-found"
	kindMethod      kind = "method-not-allowed"
	kindOverridden  kind = "overridden"
	kindRequestID   kind = "request-id-taken"
	kindEventsGone  kind = "events-gone"
	kindTooLarge    kind = "too-large"
	kindMediaType   kind = "unsupported-media-type"
	kindHost        kind = "misdirected"
	kindInvalid     kind = "invalid"
	kindLimited     kind = "too-many-failures"
	kindStreams     kind = "too-many-streams"
	kindRequests    kind = "too-many-requests"
	kindInternal    kind = "internal"
	kindUnavailable kind = "unavailable"
)

var kinds = map[kind]struct {
	status int
	title  string
}{
	kindRequest:     {http.StatusBadRequest, "The request cannot be understood"},
	kindUnknown:     {http.StatusUnauthorized, "Credentials are needed"},
	kindScope:       {http.StatusForbidden, "This is not allowed"},
	kindOrigin:      {http.StatusForbidden, "A page of another site asked for this"},
	kindNotFound:    {http.StatusNotFound, "This is not there"},
	kindMethod:      {http.StatusMethodNotAllowed, "This cannot be done here"},
	kindOverridden:  {http.StatusConflict, "The task was replaced by another"},
	kindRequestID:   {http.StatusConflict, "The request id names a task with another source"},
	kindEventsGone:  {http.StatusGone, "What came since then cannot be told"},
	kindTooLarge:    {http.StatusRequestEntityTooLarge, "The request is too large"},
	kindMediaType:   {http.StatusUnsupportedMediaType, "The body must be JSON"},
	kindHost:        {http.StatusMisdirectedRequest, "This host has another name"},
	kindInvalid:     {http.StatusUnprocessableEntity, "The request is understood, but cannot be done"},
	kindLimited:     {http.StatusTooManyRequests, "There were too many failures"},
	kindStreams:     {http.StatusTooManyRequests, "Too many streams are open"},
	kindRequests:    {http.StatusTooManyRequests, "Too many requests are under way"},
	kindInternal:    {http.StatusInternalServerError, "Something went wrong here"},
	kindUnavailable: {http.StatusServiceUnavailable, "This cannot be done right now"},
}

// ProblemTitle is the title of a kind of problem, the end of its type; empty for one
// that is not of this package.
func ProblemTitle(of string) string { return kinds[kind(of)].title }

func refuse(k kind, format string, args ...any) *problem {
	return &problem{kind: k, detail: fmt.Sprintf(format, args...)}
}

// retryAfter is what a client is told where nobody knows better.
const retryAfter = 5 * time.Second

// explain turns an error into what a client is told. What it may not know is left
// out.
func explain(err error) *problem {
	var p *problem
	var limited *access.Limited
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &limited):
		return &problem{kindLimited, "try again later", limited.After}
	case errors.As(err, &large):
		return refuse(kindTooLarge, "at most %d bytes are read", large.Limit)
	}
	for _, known := range []struct {
		err  error
		kind kind
	}{
		{access.ErrUnknown, kindUnknown}, {access.ErrWrong, kindUnknown}, {access.ErrScope, kindScope}, {access.ErrHost, kindHost},
		{store.ErrNotFound, kindNotFound}, {store.ErrWorkerUnknown, kindNotFound}, {webhook.ErrNotFound, kindNotFound}, {store.ErrOverridden, kindOverridden},
		{store.ErrRequestTaken, kindRequestID},
		{store.ErrNoStage, kindInvalid}, {store.ErrInvalid, kindInvalid}, {store.ErrInvalidKey, kindInvalid}, {webhook.ErrInvalid, kindInvalid},
		{store.ErrEventsGone, kindEventsGone},
	} {
		if errors.Is(err, known.err) {
			return &problem{kind: known.kind, detail: err.Error()}
		}
	}
	if away(err) {
		return &problem{kindUnavailable, "try again later", retryAfter}
	}
	return &problem{kind: kindInternal, detail: "what it was is in the log"}
}

// away reports whether err says that the database cannot do anything for now, in
// contrast to that one thing.
func away(err error) bool {
	var network net.Error
	var connect *pgconn.ConnectError
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code[:min(2, len(pg.Code))] {
		case "08", "53", "57", "25", "3D", "40": // appendix A: connections, resources, an operator, read only, no database, collisions
			return true
		}
		return errors.Is(err, store.ErrNoSchema)
	}
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, store.ErrNoSchema) || pgconn.SafeToRetry(err)
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := explain(err)
	if k := kinds[p.kind]; k.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.o.Trouble(r.Pattern, err)
	}
	writeProblem(w, p)
}

func writeProblem(w http.ResponseWriter, p *problem) {
	k := kinds[p.kind]
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Etag")
	if p.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.after.Seconds()))))
	}
	if p.kind == kindUnknown {
		h.Set("WWW-Authenticate", `Bearer realm="cuelight"`)
	}
	var body bytes.Buffer
	_ = writeJSON(&body, struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{ProblemTypes + string(p.kind), k.title, k.status, strings.ToValidUTF8(p.detail, "\uFFFD")}) // a buffer takes all
	h.Set("Content-Length", strconv.Itoa(body.Len())) // so that it is whole where the handler aborts
	w.WriteHeader(k.status)
	_, _ = w.Write(body.Bytes())
}

// writeJSON writes one line.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // the type says that it is no page
	return enc.Encode(v)
}

// answer is a handler's result: a status, and what is written as JSON; nil for no
// body.
type answer struct {
	status int
	body   any
	// location is the address of what was made; link that of the next page.
	location, link string
}

func ok(body any) (answer, error) { return answer{status: http.StatusOK, body: body}, nil }

func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if a.location != "" {
		h.Set("Location", a.location)
	}
	if a.link != "" {
		h.Set("Link", "<"+a.link+`>; rel="next"`)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = writeJSON(w, a.body) // whoever is gone needs no answer
}
