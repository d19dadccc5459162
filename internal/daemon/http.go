package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/web"
)

// HTTPOptions configure what a daemon serves and sends by HTTP.
type HTTPOptions struct {
	Listen                string // HOST:PORT; empty to serve nothing
	CertFile, KeyFile     string // for TLS
	Insecure              bool   // serve other addresses than loopback without TLS
	NoAuth                bool   // everyone on this host may do everything
	BasePath              string
	PublicURL             string // at which clients reach a proxy, with its path; empty if they reach this host
	Proxies               []netip.Prefix
	AdminFile, ReadFile   string // files with secrets; empty for those in the data directory
	PlaybackKeys          string // file with the keys of addresses for viewers; empty for that in the data directory
	MaxUpload             int64  // bytes
	MaxSubmissions        int    // of one user per minute; 0 for no limit
	ConnectionsPerAddress int
	DebugListen           string // address for profiles; empty for none
	SourcesFromBucket     bool   // remote workers fetch sources that are in a bucket from there

	WebhookAllow []netip.Prefix // networks that are not public and may have webhooks
	WebhookHTTP  bool           // webhooks may have http addresses
}

// guard returns the guard that identifies clients. The first start creates the secrets.
func (o *HTTPOptions) guard(dataDir string, keys access.Keys, log *zap.Logger) (*access.Guard, error) {
	options := access.Options{
		Keys: keys, NoAuth: o.NoAuth, Path: o.BasePath + "/", Proxies: o.Proxies,
		OnRefused: func(from netip.Addr, key access.Key, err error) { logRefusal(log, from, key, err) },
	}
	if !o.NoAuth {
		if err := o.loadSecrets(&options, filepath.Join(dataDir, "secrets"), log); err != nil {
			return nil, err
		}
	}
	g, err := access.New(options)
	if err != nil {
		return nil, &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
	}
	return g, nil
}

// logRefusal logs a request with invalid credentials, and the key whose prefix they have.
func logRefusal(log *zap.Logger, from netip.Addr, key access.Key, err error) {
	fields := []zap.Field{zap.Stringer("address", from), zap.NamedError("reason", err)}
	if key.Prefix != "" {
		fields = append(fields, zap.String("key", key.PrincipalName()))
	}
	log.Warn("login failed", fields...)
}

func (o *HTTPOptions) loadSecrets(to *access.Options, dir string, log *zap.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create directory of secrets: %w", err)
	}
	for _, s := range []struct {
		secret *access.Secret
		file   string
		scope  string // empty for a secret that no client presents
	}{
		{&to.Admin, cmp.Or(o.AdminFile, filepath.Join(dir, "admin")), "admin"},
		{&to.ReadOnly, cmp.Or(o.ReadFile, filepath.Join(dir, "read")), "read-only"},
		{&to.SessionKey, filepath.Join(dir, "sessions"), ""},
	} {
		secret, created, err := access.LoadSecret(s.file)
		if err != nil {
			return &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
		}
		*s.secret = secret
		if created && s.scope != "" {
			log.Info("secret created", zap.String("scope", s.scope), zap.String("path", s.file))
		}
	}
	return nil
}

// PlaybackKeysFile is the file with the keys of addresses for viewers, unless another is named.
func PlaybackKeysFile(dataDir string) string { return filepath.Join(dataDir, "secrets", "playback") }

// loadPlaybackKeys reads the keys of addresses for viewers. The first start creates one.
func (o *HTTPOptions) loadPlaybackKeys(dataDir string) (*playback.Keys, error) {
	if err := os.MkdirAll(filepath.Join(dataDir, "secrets"), 0o700); err != nil {
		return nil, fmt.Errorf("create directory of secrets: %w", err)
	}
	keys, err := playback.LoadKeys(cmp.Or(o.PlaybackKeys, PlaybackKeysFile(dataDir)))
	if err != nil {
		return nil, &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
	}
	return &keys, nil
}

// bind opens the listening socket.
func (o *HTTPOptions) bind(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, &usererr.Error{
			Text: fmt.Sprintf("--listen %s: %s", usererr.Printable(o.Listen), usererr.SystemMessage(err)),
		}
	}
	// The address that a name resolves to may differ from the one that was checked.
	if err := access.CheckListener(l.Addr(), o.CertFile != "", o.Insecure, o.NoAuth); err != nil {
		err = &usererr.Error{Kind: usererr.Usage, Text: fmt.Sprintf("--listen %s: %v", usererr.Printable(o.Listen), err)}
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// url returns the address for a browser.
func (o *HTTPOptions) url(l net.Listener) string {
	scheme := "http://"
	if o.CertFile != "" {
		scheme = "https://"
	}
	host := l.Addr().String()
	if a, err := netip.ParseAddrPort(host); err == nil && a.Addr().IsUnspecified() {
		host = net.JoinHostPort("localhost", fmt.Sprint(a.Port()))
	}
	return scheme + host + o.BasePath + "/"
}

// webOptions returns the options of the web server that flags set.
func (o *HTTPOptions) webOptions() web.Options {
	return web.Options{
		MaxConnectionsPerAddress: o.ConnectionsPerAddress, Proxies: o.Proxies,
		BasePath: o.BasePath, PublicURL: o.PublicURL, CertFile: o.CertFile, KeyFile: o.KeyFile, Insecure: o.Insecure,
	}
}
