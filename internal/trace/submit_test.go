package trace

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/codes"
	api "go.opentelemetry.io/otel/trace"
)

func TestSubmit_JoinsTheGivenTrace(t *testing.T) {
	t.Parallel()
	tracer, kept := remembering(t)
	ctx, done := tracer.Submit(t.Context(), parent)
	done(errors.New("refused"))
	s := kept.GetSpans()[0]
	if s.Parent.SpanID().String() != parentSpan || s.SpanKind != api.SpanKindProducer || s.Status.Code != codes.Error {
		t.Errorf("got %v", s)
	}
	if got := Traceparent(ctx); got != "00-"+parentTrace+"-"+s.SpanContext.SpanID().String()+"-01" {
		t.Errorf("traceparent for the row: %q", got)
	}
	inner, done := tracer.Submit(ctx, "nonsense")
	done(nil)
	if trace, _ := FromContext(inner); trace != parentTrace {
		t.Errorf("a submission within the span is in trace %s", trace)
	}
	alone, done := tracer.Submit(t.Context(), "")
	done(nil)
	if trace, span := FromContext(alone); trace == "" || trace == parentTrace || span == "" {
		t.Errorf("a submission without a trace is in trace %q", trace)
	}
}

func TestSubmit_PassesTheTraceOnWhileOff(t *testing.T) {
	t.Parallel()
	var off *Tracer
	for given, want := range map[string]string{
		parent: parent, "": "", "nonsense": "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"00-" + parentTrace + "-0000000000000000-01":              "",
		"ff-" + parentTrace + "-" + parentSpan + "-01":            "",
	} {
		ctx, done := off.Submit(t.Context(), given)
		done(nil)
		if got := Traceparent(ctx); got != want {
			t.Errorf("%q became %q", given, got)
		}
	}
}

func TestHandler_CreatesSpansForChangingRequests(t *testing.T) {
	t.Parallel()
	tracer, kept := remembering(t)
	var inHeader, inContext string
	mux := http.NewServeMux()
	mux.HandleFunc("/tasks/{id}", func(w http.ResponseWriter, r *http.Request) {
		inHeader, inContext = r.Header.Get("Traceparent"), Traceparent(r.Context())
		if err := http.NewResponseController(w).Flush(); err != nil && r.Method == http.MethodGet {
			t.Error(err)
		}
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	ask := func(tracer *Tracer, method string) *http.Request {
		r := httptest.NewRequest(method, "/tasks/7", nil)
		r.Header.Set("Traceparent", parent)
		tracer.Handler(mux).ServeHTTP(httptest.NewRecorder(), r)
		return r
	}
	r := ask(tracer, http.MethodPost)
	s := kept.GetSpans()[0]
	want := map[string]string{
		"http.request.method": "POST", "url.path": "/tasks/7", "http.route": "/tasks/{id}",
		"http.response.status_code": "200",
	}
	if s.Name != "/tasks/{id}" || s.SpanKind != api.SpanKindServer || s.Parent.SpanID().String() != parentSpan ||
		len(values(s)) != len(want) {
		t.Errorf("got %v", s)
	}
	for key, v := range want {
		if values(s)[key] != v {
			t.Errorf("%s is %q", key, values(s)[key])
		}
	}
	own := "00-" + parentTrace + "-" + s.SpanContext.SpanID().String() + "-01"
	if inHeader != own || inContext != own || r.Header.Get("Traceparent") != parent {
		t.Errorf("the handler got %q and %q; the caller's request has %q", inHeader, inContext, r.Header.Get("Traceparent"))
	}

	ask(tracer, http.MethodGet)
	if n := len(kept.GetSpans()); n != 1 || inHeader != parent {
		t.Errorf("a request that only reads: %d spans, traceparent %q", n, inHeader)
	}
	ask(nil, http.MethodPost)
	if n := len(kept.GetSpans()); n != 1 || inHeader != parent || inContext != parent {
		t.Errorf("while tracing is off: %d spans, traceparents %q and %q", n, inHeader, inContext)
	}
}

func TestHandler_MarksServerErrors(t *testing.T) {
	t.Parallel()
	tracer, kept := remembering(t)
	for _, code := range []int{http.StatusNotFound, http.StatusBadGateway} {
		h := tracer.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(code)
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), http.MethodPut, "/", nil))
	}
	for i, want := range []codes.Code{codes.Unset, codes.Error} {
		if got := kept.GetSpans()[i].Status.Code; got != want {
			t.Errorf("request %d: %v", i, got)
		}
	}
}

func TestHandler_MarksAbortedResponses(t *testing.T) {
	t.Parallel()
	tracer, kept := remembering(t)
	h := tracer.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		r.Pattern = "PUT /x"
		panic(http.ErrAbortHandler)
	}))
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), http.MethodPut, "/x", nil))
	}()
	if spans := kept.GetSpans(); len(spans) != 1 || spans[0].Status.Code != codes.Error || spans[0].Name != "PUT /x" {
		t.Errorf("spans are %+v", spans)
	}
}
