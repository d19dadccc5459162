package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

const (
	headersIn = 10 * time.Second
	idleFor   = 2 * time.Minute
	headers   = 32 << 10
	// leaveIn is how long a request may take to end whose connection was closed.
	leaveIn = 5 * time.Second
)

// Serve serves until ctx is done. Then it ends the streams, waits up to Options.Grace for other requests, and
// returns nil. When Options.Abort is closed, it closes all connections at once. It closes the listener, whose
// address must be allowed: see [access.CheckListener].
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	secure := s.o.CertFile != ""
	if err := access.CheckListener(l.Addr(), secure, s.o.Insecure, s.o.Guard.NoAuth()); err != nil {
		return errors.Join(fmt.Errorf("web: %w", err), l.Close())
	}
	srv := &http.Server{
		Handler: s.handler, ErrorLog: s.o.ErrorLog,
		ReadHeaderTimeout: headersIn, IdleTimeout: idleFor, MaxHeaderBytes: headers,
		ConnState: (&connectionLimit{
			total: s.o.Connections, each: s.o.ConnectionsEach, exempt: s.o.Proxies, byNetwork: make(map[netip.Addr]int),
		}).track,
	}
	serve := srv.Serve
	if secure {
		cert := &certificate{
			certFile: s.o.CertFile, keyFile: s.o.KeyFile, every: lookAgain,
			trouble: func(err error) { s.o.Trouble("certificate", fmt.Errorf("serve the one before: %w", err)) },
		}
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
		err = errors.Join(fmt.Errorf("web: %w", err), srv.Close())
		s.left(leaveIn)
		return err
	case <-ctx.Done():
	case <-s.o.Abort:
	}
	s.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Grace)
	defer cancel()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		select {
		case <-s.o.Abort:
			cancel()
		case <-grace.Done():
		}
	}()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close()
	}
	cancel()
	<-finished
	<-ended
	s.left(leaveIn)
	return nil
}

// left waits until no request is under way, but for no longer than that: one that does
// not hear that its connection is closed is not to keep a process.
func (s *Server) left(long time.Duration) {
	for since := time.Now(); s.underWay.Load() > 0 && time.Since(since) < long; {
		time.Sleep(5 * time.Millisecond)
	}
}
