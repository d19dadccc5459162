package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	collected "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	firstRetryDelay = time.Second
	maxRetryDelay   = 10 * time.Second
	// maxResponseBytes limits how much of a response is read.
	maxResponseBytes = 64 << 10
)

var (
	errShutdown = errors.New("this process is stopping")
	errRejected = errors.New("spans were rejected")
)

// client sends spans as OTLP over HTTP. OpenTelemetry's own client does the same, but
// depends on gRPC, which is as large as the rest of the program.
type client struct {
	settings
	http   *http.Client
	report func(error)

	ctx         context.Context // of all requests
	abort       context.CancelCauseFunc
	stopRetries chan struct{} // closed by shutdown
	stopOnce    sync.Once

	mu      sync.Mutex
	lastErr error // of the last upload
}

func newClient(s settings, report func(error)) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	if report == nil {
		report = func(error) {}
	}
	c := &client{settings: s, report: report, stopRetries: make(chan struct{})}
	c.ctx, c.abort = context.WithCancelCause(context.Background())
	c.http = &http.Client{
		Transport: transport, Timeout: s.timeout,
		// The headers may contain a secret for this collector alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Start implements otlptrace.Client. It does nothing.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client. It does nothing: the Tracer closes the client.
func (c *client) Stop(context.Context) error { return nil }

// stopRetrying ends the waits for retries, and further ones.
func (c *client) stopRetrying() { c.stopOnce.Do(func() { close(c.stopRetries) }) }

// close closes the connections and returns the error of the last upload.
func (c *client) close() error {
	c.abort(errShutdown)
	c.http.CloseIdleConnections()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastErr
}

// UploadTraces sends spans, and drops them if that fails. It reports the error itself and
// returns nil, because the SDK would print an error.
func (c *client) UploadTraces(ctx context.Context, spans []*collected.ResourceSpans) error {
	err := c.upload(ctx, spans)
	if err != nil {
		err = fmt.Errorf("send spans to %s: %w", c.endpoint.Host, err)
	}
	c.mu.Lock()
	changed := (err == nil) != (c.lastErr == nil)
	c.lastErr = err
	c.mu.Unlock()
	if changed {
		c.report(err)
	}
	return nil
}

func (c *client) upload(ctx context.Context, spans []*collected.ResourceSpans) error {
	// The request message of the protocol has the same single field as TracesData.
	body, err := proto.Marshal(&collected.TracesData{ResourceSpans: spans})
	if err == nil && c.gzip {
		body, err = compress(body)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	delays := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRetryDelay), backoff.WithMaxInterval(maxRetryDelay), backoff.WithMaxElapsedTime(0))
	for {
		err := c.post(ctx, body)
		var retry *retryableError
		if err == nil || !errors.As(err, &retry) {
			return err
		}
		if !c.wait(ctx, max(delays.NextBackOff(), retry.after)) {
			return err
		}
	}
}

// wait waits for the next try, and reports whether there should be one.
func (c *client) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.stopRetries:
	case <-ctx.Done():
	}
	return false
}

// compress compresses with gzip.
func compress(body []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(body)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

// retryableError is an error after which the client retries.
type retryableError struct {
	err   error
	after time.Duration // the minimum delay
}

func (e *retryableError) Error() string { return e.err.Error() }
func (e *retryableError) Unwrap() error { return e.err }

// post sends one request.
func (c *client) post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = c.header.Clone()
	r.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(r)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if err != nil {
		return &retryableError{err: errors.Unwrap(err)} // without the long address
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		if err == nil && resp.Header.Get("Content-Type") == "application/x-protobuf" {
			return partialSuccess(text)
		}
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway,
		code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return &retryableError{errors.New(resp.Status), retryAfter(resp.Header)}
	}
	return errors.New(resp.Status)
}

// retryAfter is the delay in the header Retry-After: a number of seconds below 65536, or a
// date.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return time.Until(at)
	}
	return 0
}

// partialSuccess reads an ExportTraceServiceResponse: its field 1 is a partial success, whose
// field 1 is the number of rejected spans and field 2 the reason.
func partialSuccess(response []byte) error {
	var count uint64
	var reason string
	err := eachField(response, func(number protowire.Number, _ uint64, partial []byte) error {
		if number != 1 {
			return nil
		}
		return eachField(partial, func(number protowire.Number, value uint64, text []byte) error {
			switch number {
			case 1:
				count = value
			case 2:
				reason = strings.ToValidUTF8(string(text), "\uFFFD")
			}
			return nil
		})
	})
	if err != nil || count == 0 {
		return nil // an invalid response to accepted spans
	}
	return fmt.Errorf("%w: %d of them: %q", errRejected, count, reason)
}

// eachField calls f with each field of a message: with the value of a number, or with bytes.
func eachField(message []byte, f func(number protowire.Number, value uint64, text []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var value uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(number, value, text); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
