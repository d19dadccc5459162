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
	"unicode"

	"github.com/cuelight/cuelight/internal/ssrf"
)

// client calls receivers.
type client struct {
	http    *http.Client
	agent   string
	timeout time.Duration
}

func newClient(o Options, policy ssrf.Policy) *client {
	dialer := &net.Dialer{Timeout: o.Timeout / 2, Resolver: o.resolver, Control: policy.Control}
	return &client{
		agent:   o.UserAgent,
		timeout: o.Timeout,
		http: &http.Client{
			// A redirect is an answer, and not a good one: whoever moves tells the
			// operator, and no receiver sends us elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				// No proxy, which would dial what we have not looked at, and no
				// connection is used twice: one that the receiver has closed in the
				// meantime would look like a failure of his.
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

// What is read of an answer, so that the receiver can get rid of it.
const (
	maxResponseBody    = 64 << 10
	bodyTimeout        = 2 * time.Second
	maxResponseExcerpt = 300 // bytes of it are kept where it says why it is not a success
)

// reply is what became of one attempt.
type response struct {
	status     int           // of the answer; 0 if there was none
	failure    string        // why it is not a success; else empty
	retryAfter time.Duration // what the receiver asked for
	aborted    bool          // we broke it off, and nothing is known
	duration   time.Duration
}

// ok reports whether the receiver has it.
func (r response) isDelivered() bool { return r.failure == "" && !r.aborted }

// send makes one attempt. It ends within the timeout, and soon after ctx.
func (c *client) send(ctx context.Context, address string, secrets []string, id, body string) response {
	begun := time.Now()
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.post(within, address, secrets, id, body)
	r.duration = time.Since(begun)
	if err != nil {
		r.failure = c.describeError(within, err)
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
		"Content-Type": "application/json", "User-Agent": c.agent,
		"webhook-id": id, "webhook-timestamp": unixSeconds(now), "webhook-signature": signed,
	} {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return response{}, err
	}
	// What matters is the status. A body that dawdles, breaks off or does not end
	// does not change it.
	late := time.AfterFunc(bodyTimeout, cancel)
	defer late.Stop()
	var said strings.Builder
	_, _ = io.CopyN(&said, resp.Body, maxResponseExcerpt)
	_, _ = io.CopyN(io.Discard, resp.Body, maxResponseBody)
	resp.Body.Close()

	r := response{status: resp.StatusCode}
	switch {
	case r.status >= 200 && r.status < 300:
	case r.status >= 300 && r.status < 400:
		r.failure = statusText(r.status) + ", and redirects are not followed"
	default:
		r.failure = statusText(r.status)
		if why := singleLine(said.String()); why != "" {
			r.failure += ": " + why
		}
	}
	if r.failure != "" {
		r.retryAfter = retryAfter(resp.Header, time.Now())
	}
	return r, nil
}

func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("the answer was %d %s", status, http.StatusText(status)))
}

// words say what went wrong. They do not repeat the address, in which there may
// be a secret.
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

// oneLine is text of strangers as a part of a sentence.
func singleLine(s string) string {
	seen := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "")) // the last letter may be cut in two
	return strings.Join(strings.Fields(seen), " ")
}

// short makes text of strangers fit for a list and for PostgreSQL.
func sanitize(s string) string {
	const most = 500
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
