package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	collected "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/cuelight/cuelight/store"
)

// collector receives spans.
type collector struct {
	*httptest.Server
	t *testing.T

	mu  sync.Mutex
	all map[string][]*collected.Span // by trace
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, all: map[string][]*collected.Span{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var got collected.TracesData
	if err := errors.Join(err, proto.Unmarshal(raw, &got)); err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range got.GetResourceSpans() {
		for _, in := range of.GetScopeSpans() {
			for _, span := range in.GetSpans() {
				id := fmt.Sprintf("%x", span.GetTraceId())
				c.all[id] = append(c.all[id], span)
			}
		}
	}
}

// caller is a trace that goes on in what is made for it.
type caller struct{ trace, span string }

func callerNo(n int) caller { return caller{fmt.Sprintf("%031xa", n), fmt.Sprintf("%015xb", n)} }

func (c caller) traceparent() string { return "00-" + c.trace + "-" + c.span + "-01" }

// videos checks that the caller's trace has so many videos, each as a whole: below
// the caller the submission, below that an attempt of each stage, below these ffmpeg.
func (c *collector) videos(n int, from caller, submission collected.Span_SpanKind) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := c.all[from.trace]
	var attempts []string
	var begin string
	var within []string // the ids of attempts
	for _, s := range spans {
		stage, isAttempt := strings.CutSuffix(s.GetName(), " attempt")
		switch {
		case s.GetKind() == submission:
			begin = string(s.GetSpanId())
			if got := fmt.Sprintf("%x", s.GetParentSpanId()); got != from.span {
				c.t.Errorf("%s is below %s, want %s", s.GetName(), got, from.span)
			}
		case isAttempt:
			attempts, within = append(attempts, stage), append(within, string(s.GetSpanId()))
		}
	}
	ffmpegs := 0
	for _, s := range spans {
		switch _, isAttempt := strings.CutSuffix(s.GetName(), " attempt"); {
		case isAttempt && string(s.GetParentSpanId()) != begin:
			c.t.Errorf("%s is not below the submission", s.GetName())
		case strings.HasPrefix(s.GetName(), "ffmpeg") && slices.Contains(within, string(s.GetParentSpanId())):
			ffmpegs++
		}
	}
	slices.Sort(attempts)
	var want []string
	for _, stage := range []string{"assemble", "ingest", "metadata", "publish", "transcode", "transcode"} {
		want = append(want, slices.Repeat([]string{stage}, n)...) // transcode's only part, and the join
	}
	if begin == "" || !slices.Equal(attempts, want) || ffmpegs < n {
		c.t.Errorf("trace %s has the submission: %v, attempts of %v, %d times ffmpeg",
			from.trace, begin != "", attempts, ffmpegs)
	}
}

func TestRun_JoinsTheTraceOfItsCaller(t *testing.T) {
	t.Parallel()
	p, c, from := newWorkDir(t), newCollector(t), callerNo(1)
	p.env = append(p.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "TRACEPARENT="+from.traceparent())
	r := p.run(0, "run", "--json", "clip.mp4", "other.mp4")
	if n := len(decode[map[string]any](r)); n != 2 {
		t.Errorf("%d reports", n)
	}
	c.videos(2, from, collected.Span_SPAN_KIND_PRODUCER)
	if len(c.all) != 1 {
		t.Errorf("there are %d traces", len(c.all))
	}
}

// The command prints the ids before it sends the trace.
func TestSubmit_PrintsIDsWithoutACollector(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	asked, hung := make(chan struct{}, 100), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-hung }))
	defer slow.Close()
	answer := sync.OnceFunc(func() { close(hung) })
	defer answer()
	p.env = append(p.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+slow.URL)
	out, err := os.Create(p.path("ids"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r := p.startWith(func(cmd *exec.Cmd) { cmd.Stdout = out }, "submit", "clip.mp4")
	<-asked // so it sends, and has not ended
	text, err := os.ReadFile(out.Name())
	if id, _ := store.ParseID(strings.TrimSpace(string(text))); err != nil || id.IsZero() {
		t.Errorf("while the trace is sent it has printed %q, %v", text, err)
	}
	answer()
	r.end(0)
}

func TestHTTPSubmission_JoinsTheTraceOfItsRequest(t *testing.T) {
	t.Parallel()
	p, c := newWorkDir(t), newCollector(t)
	video, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL)
	r := p.start("serve", "--listen", "127.0.0.1:0")
	s := p.site(r)
	ways := []struct{ method, path, typ, body string }{
		{http.MethodPost, "api/v1/tasks", "application/json", fmt.Sprintf(`{"source": %q}`, p.path("clip.mp4"))},
		{http.MethodPut, "api/v1/uploads/holiday.mp4", "video/mp4", string(video)},
		{http.MethodPost, "add", "application/x-www-form-urlencoded", url.Values{"source": {p.path("other.mp4")}}.Encode()},
	}
	for i, w := range ways {
		s.send(w.method, w.path, w.body, http.Header{"Content-Type": {w.typ}, "Traceparent": {callerNo(i).traceparent()}})
	}
	r.waitForOutput(`"msg":"stage completed"`, 5*len(ways))
	r.signal(syscall.SIGTERM)
	r.end(0)
	for i := range ways {
		c.videos(1, callerNo(i), collected.Span_SPAN_KIND_SERVER)
	}
}

// send makes a request that is to have an effect.
func (s *site) send(method, path, body string, header http.Header) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = header
	req.Header.Set("Authorization", "Bearer "+s.secret)
	resp, err := http.DefaultTransport.RoundTrip(req) // redirects are an answer
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode >= http.StatusBadRequest {
		s.t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, text, err)
	}
}
