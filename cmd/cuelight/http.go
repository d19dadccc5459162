package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/usererr"
)

// guard finds out who asks. The secrets are made on the first start.
func (o *frontOptions) guard(data string, keys access.Keys, log *zap.Logger) (*access.Guard, error) {
	options := access.Options{
		Keys: keys, NoAuth: o.noAuth, Path: o.basePath + "/", Proxies: o.trusted,
		Refused: func(from netip.Addr) { log.Warn("not let in", zap.Stringer("address", from)) },
	}
	if !o.noAuth {
		dir := filepath.Join(data, "secrets")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make directory of secrets: %w", err)
		}
		for _, s := range []struct {
			secret *access.Secret
			file   string
			what   string
		}{
			{&options.Admin, orElse(o.adminFile, filepath.Join(dir, "admin")), "admin"},
			{&options.ReadOnly, orElse(o.readFile, filepath.Join(dir, "read")), "read-only"},
			{&options.SessionKey, filepath.Join(dir, "sessions"), ""},
		} {
			var made bool
			var err error
			if *s.secret, made, err = access.LoadSecret(s.file); err != nil {
				return nil, &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
			}
			if made && s.what != "" {
				log.Info("secret made", zap.String("for", s.what), zap.String("path", s.file))
			}
		}
	}
	g, err := access.New(options)
	if err != nil {
		return nil, &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
	}
	return g, nil
}

// bind listens, so that an address that cannot be had ends the start and not the
// work.
func (o *frontOptions) bind(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.listen)
	if err != nil {
		return nil, &usererr.Error{Kind: usererr.Failure, Text: fmt.Sprintf("--listen %s: %s", usererr.Printable(o.listen), usererr.SystemMessage(err))}
	}
	// A name may lead elsewhere than it says.
	if err := access.CheckListener(l.Addr(), o.certFile != "", o.insecure, o.noAuth); err != nil {
		return nil, errors.Join(&usererr.Error{Kind: usererr.Usage, Text: fmt.Sprintf("--listen %s: %v", usererr.Printable(o.listen), err)}, l.Close())
	}
	return l, nil
}

// address is where a browser finds what is served.
func (o *frontOptions) address(l net.Listener) string {
	scheme := "http://"
	if o.certFile != "" {
		scheme = "https://"
	}
	host := l.Addr().String()
	if a, err := netip.ParseAddrPort(host); err == nil && a.Addr().IsUnspecified() {
		host = net.JoinHostPort("localhost", fmt.Sprint(a.Port()))
	}
	return scheme + host + o.basePath + "/"
}
