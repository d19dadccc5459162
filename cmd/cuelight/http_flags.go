package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/debug"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/web"
)

// frontOptions are the flags of what a daemon shows.
type frontOptions struct {
	listen            string
	certFile, keyFile string
	insecure, noAuth  bool
	basePath          string
	origins, proxies  []string
	adminFile         string
	readFile          string
	uploadMost        byteSize
	connectionsEach   int
	debug             string
	webhookAllow      *[]string
	webhookHTTP       bool
	keepEvents        time.Duration

	// What check made of them.
	trusted []netip.Prefix // the proxies
	allowed []netip.Prefix // for webhooks
}

func frontFlags(cmd *cobra.Command) *frontOptions {
	o := &frontOptions{uploadMost: 64 << 30}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "", "serve the dashboard, the HTTP API and metrics at this address, such as 127.0.0.1:8080")
	f.StringVar(&o.certFile, "tls-cert", "", "certificate for --listen; read again when it changes")
	f.StringVar(&o.keyFile, "tls-key", "", "its key")
	f.BoolVar(&o.insecure, "insecure", false, "let --listen have an address that is not loopback without TLS, because a proxy or the network protects it")
	f.BoolVar(&o.noAuth, "no-auth", false, "let everybody on this host do everything, at a loopback address")
	f.StringVar(&o.basePath, "base-path", "", "path that --listen serves everything under, such as /cuelight")
	f.StringSliceVar(&o.origins, "origin", nil, "address that a proxy serves --listen under, such as https://studio.example, if it changes the Host header; repeatable")
	f.StringSliceVar(&o.proxies, "proxy", nil, "network of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed; repeatable")
	f.StringVar(&o.adminFile, "admin-secret-file", "", "file with the secret of who may do everything, made if it is not there (default DATA-DIR/secrets/admin)")
	f.StringVar(&o.readFile, "read-secret-file", "", "file with the secret of who may only look (default DATA-DIR/secrets/read)")
	f.IntVar(&o.connectionsEach, "max-connections-per-address", 500, "how many connections to --listen one address may have; loopback addresses and those of --proxy may have more")
	f.Var(&o.uploadMost, "max-upload", "largest upload")
	f.StringVar(&o.debug, "debug-listen", "", "serve profiles (pprof) at this loopback address or unix socket")
	f.BoolVar(&o.webhookHTTP, "webhook-http", false, "let webhooks that are registered through the API have http addresses")
	f.DurationVar(&o.keepEvents, "keep-events", 7*24*time.Hour, "how long events are kept; negative for ever")
	setting(f, "listen", "tls-cert", "tls-key", "insecure", "no-auth", "base-path", "origin", "proxy", "admin-secret-file",
		"read-secret-file", "max-connections-per-address", "max-upload", "debug-listen", "webhook-http", "keep-events")
	o.webhookAllow = allowFlag(cmd)
	return o
}

// checkAddress refuses an address that must not be listened at.
func (o *frontOptions) checkAddress() error {
	if o.listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		return usererr.Usagef("--listen %s: it is HOST:PORT, such as 127.0.0.1:8080", usererr.Printable(o.listen))
	}
	if err := access.CheckListen(o.listen, o.certFile != "", o.insecure, o.noAuth); err != nil {
		hint := "--tls-cert and --tls-key, or --insecure where something else protects it"
		if o.noAuth {
			hint = "--no-auth is for 127.0.0.1, ::1 and localhost"
		}
		return &usererr.Error{Kind: usererr.Usage, Text: fmt.Sprintf("--listen: %v", err), Hint: hint}
	}
	return nil
}

// check refuses what is wrong by itself and what makes no sense together, before
// anything is begun.
func (o *frontOptions) check() (err error) {
	switch {
	case o.listen == "" && o.forListener():
		return usererr.Usagef("--tls-cert, --tls-key, --no-auth, --insecure, --base-path, --origin, --proxy, --admin-secret-file and --read-secret-file are for --listen")
	case o.keepEvents == 0:
		return usererr.Usagef("--keep-events 0s: it must be more than nothing; -1s keeps them for ever")
	case o.connectionsEach <= 0:
		return usererr.Usagef("--max-connections-per-address must be at least 1")
	case o.uploadMost <= 0:
		return usererr.Usagef("--max-upload must be more than nothing")
	case (o.certFile == "") != (o.keyFile == ""):
		return usererr.Usagef("--tls-cert and --tls-key go together")
	case o.basePath != "" && (!strings.HasPrefix(o.basePath, "/") || strings.HasSuffix(o.basePath, "/")):
		return usererr.Usagef("--base-path %s: it begins with a slash and does not end with one", usererr.Printable(o.basePath))
	}
	if o.certFile != "" {
		if _, err := tls.LoadX509KeyPair(o.certFile, o.keyFile); err != nil {
			return &usererr.Error{Kind: usererr.Usage, Text: "--tls-cert, --tls-key: " + usererr.Printable(err.Error())}
		}
	}
	if o.debug != "" {
		if err := debug.Check(o.debug); err != nil {
			return usererr.Usagef("--debug-listen %s: %v", usererr.Printable(o.debug), err)
		}
	}
	for _, origin := range o.origins {
		if http.NewCrossOriginProtection().AddTrustedOrigin(origin) != nil {
			return usererr.Usagef("--origin %s: it is an address without a path, such as https://studio.example", usererr.Printable(origin))
		}
	}
	if o.trusted, err = networksOf("--proxy", o.proxies); err != nil {
		return err
	}
	if o.allowed, err = networksOf("--webhook-allow", *o.webhookAllow); err != nil {
		return err
	}
	return o.checkAddress()
}

// forListener reports whether there are flags that mean nothing without --listen.
// (--max-upload has a default, and is no promise.)
func (o *frontOptions) forListener() bool {
	return o.certFile != "" || o.keyFile != "" || o.noAuth || o.insecure || o.basePath != "" || len(o.origins) > 0 || len(o.proxies) > 0 ||
		o.adminFile != "" || o.readFile != ""
}

// webOptions are those of the server that come from flags.
func (o *frontOptions) webOptions() web.Options {
	return web.Options{
		MaxConnectionsPerAddress: o.connectionsEach, Proxies: o.trusted,
		BasePath: o.basePath, Origins: o.origins, CertFile: o.certFile, KeyFile: o.keyFile, Insecure: o.insecure,
	}
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
