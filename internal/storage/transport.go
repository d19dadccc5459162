package storage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// transport sends the requests of a bucket.
type transport struct {
	base     *http.Transport
	endpoint string
	// isKnown: the service has answered as S3 does. From then on, other answers are those of a proxy
	// on the way, such as a page about a failure.
	isKnown atomic.Bool
	// skew is how far the service's clock is ahead, in nanoseconds, by its last answer.
	skew atomic.Int64
}

func newTransport(a Address, options Options) (*transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		config.RootCAs = x509.NewCertPool()
		if err != nil || !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &ServiceError{
				Kind: Certificate, Text: "the file of trusted certificates " + a.CAFile + " has none or cannot be read", Err: err,
				Hint: "set AWS_CA_BUNDLE to a PEM file with the certificate of the service's CA",
			}
		}
	}
	return &transport{endpoint: a.Endpoint, base: &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: config,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := options.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &activeConn{Conn: conn, idle: options.IdleTimeout}, nil
		},
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
		// A compressed answer would have another length than the object.
		DisableCompression: true,
	}}, nil
}

// RoundTrip explains errors here, because minio-go replaces some of them by texts.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.base.RoundTrip(r)
	if err != nil {
		if r.Context().Err() != nil {
			return nil, err
		}
		e := explainNetwork(t.endpoint, err)
		if e == nil {
			return nil, err
		}
		if !t.isKnown.Load() && (e.Kind == Cut || e.Kind == Unsuitable) && t.speaksTLS(r) {
			return nil, wrongScheme(t.endpoint, err)
		}
		return nil, e
	}
	if err := t.checkAnswer(r, response); err != nil {
		response.Body.Close()
		return nil, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		t.skew.Store(int64(time.Until(date)))
	}
	return response, nil
}

// activeConn ends reads and writes when no byte moved in either direction for a while. Go's
// client has no such timeout, and one for a whole request would end large transfers.
type activeConn struct {
	net.Conn
	idle time.Duration
}

func (c *activeConn) Read(p []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.idle)) // a closed connection fails in Read
	return c.Conn.Read(p)
}

func (c *activeConn) Write(p []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.idle)) // a closed connection fails in Write
	return c.Conn.Write(p)
}
