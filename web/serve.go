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
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
	// handlerExitTimeout is how long a handler may take to return after its connection was closed.
	handlerExitTimeout = 5 * time.Second
)

// Serve serves until ctx is done. Then it ends the streams, waits up to Options.Grace for other requests, and
// returns nil. When Options.Abort is closed, it closes all connections at once. It closes the listener, whose
// address must be allowed: see [access.CheckListener].
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	isTLS := s.opts.CertFile != ""
	if err := access.CheckListener(l.Addr(), isTLS, s.opts.Insecure, s.opts.Guard.NoAuth()); err != nil {
		return errors.Join(fmt.Errorf("web: %w", err), l.Close())
	}
	limit := &connectionLimit{
		total: s.opts.MaxConnections, perNetwork: s.opts.MaxConnectionsPerAddress, exempt: s.opts.Proxies,
		byNetwork: make(map[netip.Addr]int),
	}
	srv := &http.Server{
		Handler: s.handler, ErrorLog: s.opts.ErrorLog, ConnState: limit.track,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	serve := srv.Serve
	if isTLS {
		var err error
		if srv.TLSConfig, err = s.tlsConfig(); err != nil {
			return errors.Join(fmt.Errorf("web: read certificate: %w", err), l.Close())
		}
		serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	// A handler that does not notice its closed connection must not keep the process running.
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), handlerExitTimeout)
		defer cancel()
		s.waitForHandlers(ctx)
	}()
	served := make(chan error, 1)
	go func() { served <- serve(l) }()
	select {
	case err := <-served:
		s.Drain()
		return errors.Join(fmt.Errorf("web: %w", err), srv.Close())
	case <-ctx.Done():
	case <-s.opts.Abort:
	}
	s.Drain()
	s.shutdown(srv)
	<-served
	return nil
}

func (s *Server) tlsConfig() (*tls.Config, error) {
	cert := &certificate{
		certFile: s.opts.CertFile, keyFile: s.opts.KeyFile, interval: certificateCheckInterval,
		onError: func(err error) { s.opts.OnError("certificate", fmt.Errorf("keep the previous certificate: %w", err)) },
	}
	if _, err := cert.get(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.get() },
	}, nil
}

// shutdown waits for active requests, and closes their connections when the grace is over or the server is aborted.
func (s *Server) shutdown(srv *http.Server) {
	grace, cancel := context.WithTimeout(context.Background(), s.opts.Grace)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-s.opts.Abort:
			cancel()
		case <-grace.Done():
		}
	}()
	_ = srv.Shutdown(grace)
	if grace.Err() != nil {
		_ = srv.Close()
	}
	cancel()
	<-watched
}

// waitForHandlers waits until no handler runs or ctx is done.
func (s *Server) waitForHandlers(ctx context.Context) {
	for s.activeRequests.Load() > 0 && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
}
