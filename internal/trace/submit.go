package trace

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	api "go.opentelemetry.io/otel/trace"
)

// Submit starts the span of a submission: below the span of parent, a traceparent; without
// parent, below the span of ctx; without either, as a new trace. A command line tool finds
// parent, by convention, in the variable TRACEPARENT. The [Traceparent] of the returned
// context belongs into the row. Call the returned function with the result of the
// submission.
//
// While tracing is off, the context passes on the span of parent or ctx.
func (t *Tracer) Submit(ctx context.Context, parent string) (context.Context, func(error)) {
	ctx = withParent(ctx, parent)
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, "submit", api.WithSpanKind(api.SpanKindProducer))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, brief(err))
		}
		span.End()
	}
}

// Handler wraps next with a span for each request that may change something. Requests that
// only read may last for days and have no span. The header Traceparent that next gets, and
// the [Traceparent] of the request's context, is that of the span; while tracing is off, it
// is that of the client.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isChange(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		ctx := withParent(r.Context(), r.Header.Get(header))
		if t != nil {
			t.serve(ctx, w, r, next)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// isChange reports whether a method may change something.
func isChange(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

func (t *Tracer) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler) {
	const maxPath = 200
	ctx, span := t.tracer.Start(ctx, r.Method, api.WithSpanKind(api.SpanKindServer), api.WithAttributes(
		attribute.String("http.request.method", r.Method),
		attribute.String("url.path", r.URL.Path[:min(len(r.URL.Path), maxPath)]),
	))
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone()
	r.Header.Set(header, Traceparent(ctx))
	recorder := &statusRecorder{ResponseWriter: w}
	returned := false
	defer func() { // even if next panics
		setResponse(span, r.Pattern, recorder.status, returned)
		span.End()
	}()
	next.ServeHTTP(recorder, r)
	returned = true
}

// setResponse records the response in a span.
func setResponse(span api.Span, route string, status int, returned bool) {
	if route != "" {
		_, path, _ := strings.Cut(route, " ")
		span.SetName(route)
		span.SetAttributes(attribute.String("http.route", cmp.Or(path, route)))
	}
	if status == 0 && returned {
		status = http.StatusOK
	}
	if status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	switch {
	case status >= http.StatusInternalServerError:
		span.SetStatus(codes.Error, http.StatusText(status))
	case !returned:
		span.SetStatus(codes.Error, "the response was aborted")
	}
}

// statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader records the status.
func (r *statusRecorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write records the implicit status 200.
func (r *statusRecorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap supports [http.ResponseController].
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
