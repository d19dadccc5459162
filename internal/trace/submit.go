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

// Submit begins a submission: within the span that parent, a traceparent, tells
// of; else within that of ctx; else as the beginning of a trace. A command line
// tool finds parent, by convention, in the variable TRACEPARENT. [Traceparent] of
// the context that it returns is for the row. The function it returns must be
// called, with what became of the submission.
//
// Off, the context hands on what parent or ctx says.
func (t *Tracer) Submit(ctx context.Context, parent string) (context.Context, func(error)) {
	ctx = within(ctx, parent)
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

// Handler is next with a span for each request that may change something; those
// that only read, and may go on for days, have none. What next finds in the
// header Traceparent is its own span, and so is what [Traceparent] says of the
// request's context: off, that of the caller.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !changes(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		ctx := within(r.Context(), r.Header.Get(header))
		if t != nil {
			t.serve(ctx, w, r, next)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func changes(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

func (t *Tracer) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler) {
	const pathMost = 200
	ctx, span := t.tracer.Start(ctx, r.Method, api.WithSpanKind(api.SpanKindServer), api.WithAttributes(
		attribute.String("http.request.method", r.Method),
		attribute.String("url.path", r.URL.Path[:min(len(r.URL.Path), pathMost)]),
	))
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone()
	r.Header.Set(header, Traceparent(ctx))
	heard := &listening{ResponseWriter: w}
	returned := false
	defer func() { // whatever becomes of next
		answered(span, r.Pattern, heard.status, returned)
		span.End()
	}()
	next.ServeHTTP(heard, r)
	returned = true
}

// answered says what became of a request.
func answered(span api.Span, route string, status int, returned bool) {
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
		span.SetStatus(codes.Error, "the answer was broken off")
	}
}

// listening hears what status a request is answered with.
type listening struct {
	http.ResponseWriter
	status int
}

func (l *listening) WriteHeader(status int) {
	if l.status == 0 && status >= http.StatusOK {
		l.status = status
	}
	l.ResponseWriter.WriteHeader(status)
}

func (l *listening) Write(b []byte) (int, error) {
	if l.status == 0 {
		l.status = http.StatusOK
	}
	return l.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (l *listening) Unwrap() http.ResponseWriter { return l.ResponseWriter }
