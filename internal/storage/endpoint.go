package storage

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// wrongScheme is the error of an endpoint with https whose service speaks http, or the reverse.
func wrongScheme(endpoint string, cause error) *ServiceError {
	given, spoken := "https", "http"
	if strings.HasPrefix(endpoint, "http://") {
		given, spoken = spoken, given
	}
	e := newServiceError(Unsuitable, endpoint, cause)
	e.Text = "the service at " + hostOf(endpoint) + " speaks " + spoken + ", not " + given
	e.Hint = "write " + spoken + " instead of " + given + " in AWS_ENDPOINT_URL, or in the option endpoint of the address"
	return e
}

// notS3 is the error of a service that answers like a web server.
func notS3(endpoint string) *ServiceError {
	e := newServiceError(Unsuitable, endpoint, nil)
	e.Text = "the server at " + hostOf(endpoint) + " is not an S3 service"
	e.Hint = "correct AWS_ENDPOINT_URL, or the option endpoint of the address"
	return e
}

// peeked is how much of an answer decides whether it is one of S3.
const peeked = 512

// checkAnswer returns an error if an answer cannot be one of S3, before any other was.
func (t *transport) checkAnswer(r *http.Request, response *http.Response) error {
	if t.isKnown.Load() {
		return nil
	}
	if location, err := response.Location(); err == nil && isWithTLS(r.URL, location) {
		return wrongScheme(t.endpoint, nil)
	}
	buffered := bufio.NewReaderSize(response.Body, peeked)
	start, _ := buffered.Peek(peeked) // the reader of the body meets the error
	response.Body = struct {
		io.Reader
		io.Closer
	}{buffered, response.Body}
	if isS3, isSure := looksLikeS3(r, response, bytes.TrimSpace(start)); isSure && !isS3 {
		if t.speaksTLS(r) {
			return wrongScheme(t.endpoint, nil)
		}
		return notS3(t.endpoint)
	} else if isSure {
		t.isKnown.Store(true)
	}
	return nil
}

// isWithTLS reports whether a redirect leads to the same host by https.
func isWithTLS(from, to *url.URL) bool {
	return from.Scheme == "http" && to.Scheme == "https" && from.Hostname() == to.Hostname()
}

// looksLikeS3 decides by the start of an answer's body. Nothing is certain without one, and about
// failures, which may be those of a proxy.
func looksLikeS3(r *http.Request, response *http.Response, start []byte) (isS3, isSure bool) {
	isHTML := strings.HasPrefix(response.Header.Get("Content-Type"), "text/html")
	switch {
	case len(start) == 0, response.StatusCode >= http.StatusInternalServerError:
		return false, false
	case response.StatusCode >= http.StatusMultipleChoices:
		return bytes.Contains(start, []byte("<Error")), true
	case r.URL.Query().Has("list-type"):
		return bytes.Contains(start, []byte("<ListBucketResult")), true
	}
	return false, isHTML
}

// speaksTLS reports whether the service of an endpoint with http answers a TLS handshake.
func (t *transport) speaksTLS(r *http.Request) bool {
	if proxy, err := t.base.Proxy(r); r.URL.Scheme != "http" || proxy != nil || err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), t.base.TLSHandshakeTimeout)
	defer cancel()
	conn, err := t.base.DialContext(ctx, "tcp", r.URL.Host)
	if err != nil {
		return false
	}
	defer conn.Close()
	config := t.base.TLSClientConfig.Clone()
	config.ServerName = r.URL.Hostname()
	err = tls.Client(conn, config).HandshakeContext(ctx)
	_, isUntrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return err == nil || isUntrusted
}
