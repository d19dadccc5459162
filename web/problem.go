package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

const (
	// defaultRetryAfter is the Retry-After of errors that suggest no better one.
	defaultRetryAfter = 5 * time.Second
	internalDetail    = "an internal error occurred; the server's log has the details"
	unavailableDetail = "the database is not available; try again later"
)

// knownErrors are errors whose text a client may see, and their kinds.
var knownErrors = []struct {
	err  error
	kind problem.Kind
}{
	{access.ErrNoCredentials, problem.Unauthenticated},
	{access.ErrInvalidCredentials, problem.Unauthenticated},
	{access.ErrForbidden, problem.Forbidden},
	{access.ErrHostName, problem.Misdirected},
	{store.ErrNotFound, problem.NotFound},
	{store.ErrWorkerUnknown, problem.NotFound},
	{webhook.ErrNotFound, problem.NotFound},
	{store.ErrOverridden, problem.Overridden},
	{store.ErrPurging, problem.Purging},
	{store.ErrUnpublishing, problem.Unpublishing},
	{store.ErrRequestIDTaken, problem.RequestIDTaken},
	{store.ErrNoStage, problem.Invalid},
	{store.ErrInvalid, problem.Invalid},
	{access.ErrInvalidKey, problem.Invalid},
	{webhook.ErrInvalid, problem.Invalid},
	{store.ErrEventsGone, problem.EventsGone},
}

// problemOf returns what a client may know of an error.
func problemOf(err error) *problem.Problem {
	var p *problem.Problem
	var limited *access.TooManyFailuresError
	var large *http.MaxBytesError
	var rate *ops.RateError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &limited):
		return problem.New(problem.TooManyFailures, "too many failed logins from this address; try again later").
			After(limited.After)
	case errors.As(err, &rate):
		return problem.New(problem.TooManySubmissions, "%s", rate.Error()).After(rate.Wait)
	case errors.As(err, &large):
		return problem.New(problem.TooLarge, "the body is larger than %d bytes, the limit", large.Limit)
	}
	for _, known := range knownErrors {
		if errors.Is(err, known.err) {
			return &problem.Problem{Kind: known.kind, Detail: err.Error()}
		}
	}
	if isUnavailable(err) {
		return problem.New(problem.Unavailable, unavailableDetail).After(defaultRetryAfter)
	}
	return problem.New(problem.Internal, internalDetail)
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
	if p.Status() >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.opts.OnError(r.Pattern, err)
	}
	p.Write(w, r)
}
