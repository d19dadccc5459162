package trace

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	collected "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/cuelight/cuelight/internal/waittest"
)

// collector receives spans, and sends the configured answers.
type collector struct {
	t *testing.T
	*httptest.Server

	mu      sync.Mutex
	answers []func(http.ResponseWriter) // to the first requests; the others are accepted
	headers []http.Header
	spans   []*collected.ResourceSpans
}

func newCollector(t *testing.T, answers ...func(http.ResponseWriter)) *collector {
	t.Helper()
	c := &collector{t: t, answers: answers}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header)
	if n := len(c.headers); n <= len(c.answers) && c.answers[n-1] != nil {
		c.answers[n-1](w)
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = unzipped
	}
	raw, err := io.ReadAll(body)
	var got collected.TracesData
	if err := errors.Join(err, proto.Unmarshal(raw, &got)); err != nil {
		c.t.Error(err)
	}
	c.spans = append(c.spans, got.GetResourceSpans()...)
}

// names returns the names of the received spans.
func (c *collector) names() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.spans {
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				all = append(all, span.GetName())
			}
		}
	}
	return all
}

func status(code int, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

// started returns the Tracer that Start makes with an environment.
func started(t *testing.T, o Options, pairs ...string) *Tracer {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		t.Setenv(pairs[i], pairs[i+1])
	}
	tracer, err := Start(t.Context(), o)
	if err != nil || tracer == nil {
		t.Fatalf("got %v, %v", tracer, err)
	}
	return tracer
}

// submitOne creates one span.
func submitOne(t *Tracer) {
	_, done := t.Submit(context.Background(), "")
	done(nil)
}

func within5s(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestStart_SendsSpansAsConfigured(t *testing.T) {
	c := newCollector(t)
	tracer := started(t, Options{Version: "v3"},
		"OTEL_EXPORTER_OTLP_ENDPOINT", c.URL, "OTEL_EXPORTER_OTLP_COMPRESSION", "gzip",
		"OTEL_EXPORTER_OTLP_HEADERS", "X-Key=k%2C1",
		"OTEL_SERVICE_NAME", "studio", "OTEL_RESOURCE_ATTRIBUTES", "room=3")
	submitOne(tracer)
	if err := tracer.Shutdown(within5s(t)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.names(), " "); got != "submit" {
		t.Fatalf("got %q", got)
	}
	if h := c.headers[0]; h.Get("X-Key") != "k,1" || h.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("headers %v", h)
	}
	about := make(map[string]string)
	for _, a := range c.spans[0].GetResource().GetAttributes() {
		about[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if about["service.name"] != "studio" || about["service.version"] != "v3" || about["room"] != "3" ||
		about["host.name"] == "" {
		t.Errorf("resource %v", about)
	}
	submitOne(tracer) // after Shutdown, it is dropped
}

func TestStart_AcceptsAPrivateCertificateAuthority(t *testing.T) {
	c := &collector{t: t}
	c.Server = httptest.NewTLSServer(c)
	defer c.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	tracer := started(t, Options{}, "OTEL_EXPORTER_OTLP_ENDPOINT", c.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE", file)
	submitOne(tracer)
	if err := tracer.Shutdown(within5s(t)); err != nil || len(c.names()) != 1 {
		t.Errorf("%v; got %q", err, c.names())
	}
}

func TestStart_ReturnsNilWithoutConfiguration(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		t.Setenv(name, "")
	}
	tracer, err := Start(t.Context(), Options{})
	if tracer != nil || err != nil {
		t.Errorf("got %v, %v", tracer, err)
	}
	if err := tracer.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestClient_RetriesABusyCollector(t *testing.T) {
	c := newCollector(t, status(503, "Retry-After", "1"), status(429))
	var reported []error
	tracer := started(t, Options{Report: func(err error) { reported = append(reported, err) }},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.URL,
		"OTEL_BSP_SCHEDULE_DELAY", "1")
	submitOne(tracer)
	waittest.Until(t, "the collector has a span", func() bool { return len(c.names()) > 0 })
	if err := tracer.Shutdown(within5s(t)); err != nil {
		t.Error(err)
	}
	if got := c.names(); len(got) != 1 || len(c.headers) != 3 || len(reported) != 0 {
		t.Errorf("got %q after %d requests; reported %v", got, len(c.headers), reported)
	}
}

func TestClient_ReportsFailureAndRecoveryOnce(t *testing.T) {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), "too old")
	answer := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	c := newCollector(t, status(401), status(302, "Location", "/elsewhere"), func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	})
	var reported []error
	s, _, err := readSettings(vars("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL))
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(s, func(err error) { reported = append(reported, err) })
	for range 5 {
		if err := client.UploadTraces(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	if err := client.close(); err != nil || len(c.headers) != 5 {
		t.Errorf("%v after %d requests", err, len(c.headers))
	}
	if len(reported) != 2 || !strings.Contains(reported[0].Error(), "401") || reported[1] != nil {
		t.Errorf("reported %v", reported)
	}
	err = partialSuccess(answer)
	if !errors.Is(err, errRejected) || !strings.Contains(err.Error(), `7 of them: "too old"`) {
		t.Errorf("rejection: %v", err)
	}
}

// One port has no listener, and the listener of the other never answers.
func TestClient_DoesNotBlockWithoutACollector(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, tt := range []struct {
		name, addr       string
		deadline, atMost time.Duration
	}{
		{"nobody", nobody, 20 * time.Second, 5 * time.Second}, // it is not retried
		{"silence", silent.Addr().String(), 300 * time.Millisecond, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tracer := started(t, Options{}, "OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+tt.addr, "OTEL_BSP_SCHEDULE_DELAY", "1")
			began := time.Now()
			for range 10_000 { // five times the size of the queue
				submitOne(tracer)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("work took %s", took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			defer cancel()
			began = time.Now()
			err := tracer.Shutdown(ctx)
			if took := time.Since(began); err == nil || took > tt.atMost {
				t.Errorf("the end took %s: %v", took, err)
			}
			if tt.name == "silence" && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRetryAfter_AcceptsSecondsAndDates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
		for text, want := range map[string]time.Duration{
			"": 0, "7": 7 * time.Second, at: 90 * time.Second, "soon": 0, "-1": 0,
		} {
			if got := retryAfter(http.Header{"Retry-After": {text}}); got != want {
				t.Errorf("%q: got %s, want %s", text, got, want)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{10, 2, 8, 1})
	f.Fuzz(func(t *testing.T, answer []byte) {
		if err := partialSuccess(answer); err != nil && !errors.Is(err, errRejected) {
			t.Error(err)
		}
	})
}
