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
	tryAgainAfter  = time.Second
	tryAgainAtMost = 10 * time.Second
	// answerMost is how much of an answer is read, in bytes.
	answerMost = 64 << 10
)

var (
	errEnding   = errors.New("this process is stopping")
	errRejected = errors.New("spans were rejected")
)

// client posts spans as OTLP over HTTP. OpenTelemetry's own does no more, but
// brings gRPC with it, which is as large as the rest of the program.
type client struct {
	settings
	http   *http.Client
	report func(error)

	life   context.Context // of all requests
	abort  context.CancelCauseFunc
	ending chan struct{} // closed where nothing is tried twice any more
	end    sync.Once

	mu     sync.Mutex
	failed error // the last of what was sent; nil if that arrived
}

func newClient(s settings, report func(error)) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	if report == nil {
		report = func(error) {}
	}
	c := &client{settings: s, report: report, ending: make(chan struct{})}
	c.life, c.abort = context.WithCancelCause(context.Background())
	c.http = &http.Client{
		Transport: transport, Timeout: s.timeout,
		// The headers may hold a secret, which is for nobody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Start and Stop have nothing to do: the Tracer closes.
func (c *client) Start(context.Context) error { return nil }

// Stop is the exporter's, see Start.
func (c *client) Stop(context.Context) error { return nil }

// hurry ends waiting for better times.
func (c *client) hurry() { c.end.Do(func() { close(c.ending) }) }

// close ends the connections, and returns why what was sent last has not arrived.
func (c *client) close() error {
	c.abort(errEnding)
	c.http.CloseIdleConnections()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// UploadTraces sends spans. What cannot be sent is dropped; that is told here, so
// that the SDK has no error, which it would print.
func (c *client) UploadTraces(ctx context.Context, spans []*collected.ResourceSpans) error {
	err := c.upload(ctx, spans)
	if err != nil {
		err = fmt.Errorf("send spans to %s: %w", c.endpoint.Host, err)
	}
	c.mu.Lock()
	news := (err == nil) != (c.failed == nil)
	c.failed = err
	c.mu.Unlock()
	if news {
		c.report(err)
	}
	return nil
}

func (c *client) upload(ctx context.Context, spans []*collected.ResourceSpans) error {
	// What a collector is asked is defined as a message of its own, with the same
	// one field.
	body, err := proto.Marshal(&collected.TracesData{ResourceSpans: spans})
	if err == nil && c.gzip {
		body, err = compress(body)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })()
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(tryAgainAfter), backoff.WithMaxInterval(tryAgainAtMost), backoff.WithMaxElapsedTime(0))
	for {
		err := c.post(ctx, body)
		var later *laterError
		if err == nil || !errors.As(err, &later) {
			return err
		}
		if !c.wait(ctx, max(pause.NextBackOff(), later.after)) {
			return err
		}
	}
}

// wait reports whether there is a point in trying again.
func (c *client) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ending:
	case <-ctx.Done():
	}
	return false
}

func compress(body []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(body)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

// laterError is one that may go away.
type laterError struct {
	err   error
	after time.Duration // at least
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// post sends a request.
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
	answer, err := c.http.Do(r)
	if why := context.Cause(ctx); err != nil && why != nil {
		return why
	}
	if err != nil {
		return &laterError{err: errors.Unwrap(err)} // without the address, which is long
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, answerMost))
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		if err == nil && answer.Header.Get("Content-Type") == "application/x-protobuf" {
			return rejected(said)
		}
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return &laterError{errors.New(answer.Status), retryAfter(answer.Header)}
	}
	return errors.New(answer.Status)
}

// retryAfter is what a collector asks for, in its own words no longer than what
// somebody would still wait for.
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

// rejected reads an ExportTraceServiceResponse: field 1 of it is a partial
// success, with the number of spans that were not taken as 1 and a reason as 2.
func rejected(answer []byte) error {
	var count uint64
	var reason string
	err := fields(answer, func(number protowire.Number, _ uint64, partial []byte) error {
		if number != 1 {
			return nil
		}
		return fields(partial, func(number protowire.Number, value uint64, text []byte) error {
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
		return nil // it took them, and says so badly
	}
	return fmt.Errorf("%w: %d of them: %q", errRejected, count, reason)
}

// fields calls each with the fields of a message: with a number's value, or with
// bytes.
func fields(message []byte, each func(number protowire.Number, value uint64, text []byte) error) error {
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
		if err := each(number, value, text); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
