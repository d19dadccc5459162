package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/ssrf"
)

// Limits for a response's body. It is read so that the receiver can finish sending it.
const (
	maxResponseBody    = 64 << 10
	bodyTimeout        = 2 * time.Second
	maxResponseExcerpt = 300 // bytes that are kept of the body of a failure
)

// client calls receivers.
type client struct {
	http      *http.Client
	userAgent string
	timeout   time.Duration
}

func newClient(o Options, policy ssrf.Policy) *client {
	dialer := &net.Dialer{Timeout: o.Timeout / 2, Resolver: o.resolver, Control: policy.Control}
	return &client{
		userAgent: o.UserAgent,
		timeout:   o.Timeout,
		http: &http.Client{
			// A redirect is a failure: an operator enters a new URL, not a receiver.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				// No proxy: it would connect to addresses that the policy does not see.
				// No keep-alive: a connection that the receiver closed in the meantime
				// would look like a failure.
				DialContext:            dialer.DialContext,
				DisableKeepAlives:      true,
				DisableCompression:     true,
				TLSClientConfig:        &tls.Config{RootCAs: o.rootCAs, MinVersion: tls.VersionTLS12},
				TLSHandshakeTimeout:    o.Timeout / 2,
				MaxResponseHeaderBytes: 64 << 10,
			},
		},
	}
}

// response is the result of one attempt.
type response struct {
	status     int    // 0 if there was no response
	failure    string // empty after success
	retryAfter time.Duration
	aborted    bool // the context ended; the result is unknown
	duration   time.Duration
}

func (r response) isDelivered() bool { return r.failure == "" && !r.aborted }

// send makes one attempt. It returns within the timeout, and soon after ctx ends.
func (c *client) send(ctx context.Context, address string, secrets []string, id, body string) response {
	begun := time.Now()
	callCtx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.post(callCtx, address, secrets, id, body)
	r.duration = time.Since(begun)
	if err != nil {
		r.failure = c.describeError(callCtx, err)
		r.aborted = ctx.Err() != nil
	}
	return r
}

func (c *client) post(ctx context.Context, address string, secrets []string, id, body string) (response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := time.Now()
	signed, err := signatures(secrets, id, now, body)
	if err != nil {
		return response{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return response{}, errors.New("the webhook's address is not a URL")
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": c.userAgent,
		"webhook-id": id, "webhook-timestamp": unixSeconds(now), "webhook-signature": signed,
	} {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return response{}, err
	}
	// Only the status counts. A body that is slow, endless or incomplete changes nothing.
	bodyTimer := time.AfterFunc(bodyTimeout, cancel)
	defer bodyTimer.Stop()
	var excerpt strings.Builder
	_, _ = io.CopyN(&excerpt, resp.Body, maxResponseExcerpt)
	_, _ = io.CopyN(io.Discard, resp.Body, maxResponseBody)
	resp.Body.Close()
	return newResponse(resp, excerpt.String()), nil
}

func newResponse(resp *http.Response, excerpt string) response {
	r := response{status: resp.StatusCode}
	if r.status >= 200 && r.status < 300 {
		return r
	}
	r.failure = strings.TrimSpace(fmt.Sprintf("the answer was %d %s", r.status, http.StatusText(r.status)))
	r.retryAfter = retryAfter(resp.Header, time.Now())
	if r.status >= 300 && r.status < 400 {
		r.failure += ", and redirects are not followed"
	} else if text := singleLine(excerpt); text != "" {
		r.failure += ": " + text
	}
	return r
}

// describeError returns a message without the address, which may contain a secret.
func (c *client) describeError(ctx context.Context, err error) string {
	if message, ok := ssrf.Describe(err); ok {
		return message
	}
	if ctx.Err() == context.DeadlineExceeded {
		return fmt.Sprintf("no answer within %v", c.timeout)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return sanitize(err.Error())
}
