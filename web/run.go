package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

const (
	headersIn = 10 * time.Second
	idleFor   = 2 * time.Minute
	headers   = 32 << 10
)

// Run listens at Options.Addr and serves until ctx is done; then it closes the
// streams, and gives other requests the grace to end. It returns nil after that,
// and an error where the address is not allowed or cannot be listened at.
func (s *Server) Run(ctx context.Context) error {
	secure := s.o.CertFile != ""
	if err := access.CheckListen(s.o.Addr, secure, s.o.Insecure, s.o.Guard.NoAuth()); err != nil {
		return fmt.Errorf("web: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.o.Addr)
	if err != nil {
		return fmt.Errorf("web: %w", err)
	}
	return s.Serve(ctx, l)
}

// Serve is Run with a listener, which it closes. The listener's address must be
// allowed, too: whatever a name was resolved to.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	secure := s.o.CertFile != ""
	if err := access.CheckListener(l.Addr(), secure, s.o.Insecure, s.o.Guard.NoAuth()); err != nil {
		return errors.Join(fmt.Errorf("web: %w", err), l.Close())
	}
	srv := &http.Server{
		Handler: s.handler, ErrorLog: s.o.ErrorLog,
		ReadHeaderTimeout: headersIn, IdleTimeout: idleFor, MaxHeaderBytes: headers,
		ConnState: atMost(s.o.Connections),
	}
	serve := srv.Serve
	if secure {
		cert := &certificate{certFile: s.o.CertFile, keyFile: s.o.KeyFile}
		if _, err := cert.get(ctx); err != nil {
			return errors.Join(fmt.Errorf("web: read certificate: %w", err), l.Close())
		}
		srv.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.get(h.Context()) },
		}
		serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(l) }()
	select {
	case err := <-ended:
		s.Drain()
		return fmt.Errorf("web: %w", err)
	case <-ctx.Done():
	}
	s.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Grace)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // they have had their time
	}
	<-ended
	return nil
}

// atMost closes connections that are too many.
func atMost(most int) func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > int64(most) {
				_ = c.Close() // whoever serves it is told so, and it is counted out
			}
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
}

// stamped is a certificate and when its files were written.
type stamped struct {
	certificate *tls.Certificate
	modified    time.Time
}

// lookAgain is how often the files are looked at.
const lookAgain = 10 * time.Second

// get is the certificate as it is now; one that cannot be read, because it is just
// being replaced, is served as it was.
func (c *certificate) get(ctx context.Context) (*tls.Certificate, error) {
	now, err := c.memo.get(ctx, lookAgain, func(context.Context) (stamped, error) {
		old := c.memo.value
		modified, err := c.modified()
		if err == nil && old.certificate != nil && modified.Equal(old.modified) {
			return old, nil
		}
		if err == nil {
			var pair tls.Certificate
			if pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile); err == nil {
				return stamped{&pair, modified}, nil
			}
		}
		if old.certificate != nil {
			return old, nil
		}
		return stamped{}, err
	})
	return now.certificate, err
}
