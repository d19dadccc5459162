package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/web"
)

// httpFlags are the flags of what a daemon serves and sends by HTTP.
type httpFlags struct{ daemon.HTTPOptions }

func addHTTPFlags(f *pflag.FlagSet) *httpFlags {
	o := &httpFlags{daemon.HTTPOptions{MaxUpload: 64 << 30}}
	f.StringVar(&o.Listen, "listen", "",
		"serve the dashboard, the HTTP API and metrics at this address, such as 127.0.0.1:8080")
	f.StringVar(&o.CertFile, "tls-cert", "", "TLS certificate for --listen; reloaded when the file changes")
	f.StringVar(&o.KeyFile, "tls-key", "", "key of --tls-cert")
	f.BoolVar(&o.Insecure, "insecure", false,
		"let --listen use an address other than loopback without TLS, if a proxy or the network protects it")
	f.BoolVar(&o.NoAuth, "no-auth", false, "give everyone on this host full access; for loopback addresses only")
	f.StringVar(&o.BasePath, "base-path", "", "path below which --listen serves everything, such as /cuelight")
	f.StringVar(&o.PublicURL, "public-url", "", publicURLUsage)
	f.Var((*networks)(&o.Proxies), "proxy",
		"network of trusted proxies, whose X-Forwarded-For and X-Forwarded-Proto are used; repeatable")
	f.StringVar(&o.AdminFile, "admin-secret-file", "",
		"file with the secret for full access, created if it does not exist (default DATA-DIR/secrets/admin)")
	f.StringVar(&o.ReadFile, "read-secret-file", "",
		"file with the secret for read access (default DATA-DIR/secrets/read)")
	f.StringVar(&o.PlaybackKeys, "playback-keys", "", playbackKeysUsage)
	f.IntVar(&o.ConnectionsPerAddress, "max-connections-per-address", 500,
		"maximum connections to --listen from one address, except loopback addresses and --proxy")
	f.Var((*byteSize)(&o.MaxUpload), "max-upload", "largest upload")
	f.IntVar(&o.MaxSubmissions, "max-submissions-per-user", 0,
		"maximum videos that are submitted for one user per minute through --listen; 0 for no limit")
	f.BoolVar(&o.SourcesFromBucket, "sources-from-bucket", true,
		"let remote workers fetch sources from the bucket that --data-dir is; false to send them from here")
	f.StringVar(&o.DebugListen, "debug-listen", "", "serve profiles (pprof) at this loopback address")
	f.BoolVar(&o.WebhookHTTP, "webhook-http", false, "allow http addresses for webhooks that are added through the API")
	webhookAllowFlag(f, &o.WebhookAllow)
	return o
}

const publicURLUsage = "address of --listen for viewers and browsers, such as https://media.example, in links to videos and pages"

func checkPublicURL(text string) error {
	if text != "" && web.CheckPublicURL(text) != nil {
		return invalidFlag("public-url", text, "an address such as https://media.example, without a slash at its end")
	}
	return nil
}

// check checks the flags by themselves and against each other. further are the names of other given flags that only matter
// with --listen.
func (o *httpFlags) check(further []string) error {
	errs := []error{checkFlags(
		flagCheck{o.ConnectionsPerAddress > 0, "max-connections-per-address", o.ConnectionsPerAddress, "at least 1"},
		flagCheck{o.MaxSubmissions >= 0, "max-submissions-per-user", o.MaxSubmissions, "positive, or 0 for no limit"},
		flagCheck{o.MaxUpload > 0, "max-upload", o.MaxUpload, "positive"},
		flagCheck{
			o.BasePath == "" || strings.HasPrefix(o.BasePath, "/") && !strings.HasSuffix(o.BasePath, "/"),
			"base-path", o.BasePath, "a path that begins with a slash and does not end with one",
		},
	)}
	switch {
	case o.Listen == "" && len(o.listenFlags())+len(further) > 0:
		errs = append(errs, usererr.Usagef("%s: without --listen this has no effect", strings.Join(append(o.listenFlags(), further...), ", ")))
	case (o.CertFile == "") != (o.KeyFile == ""):
		errs = append(errs, usererr.Usagef("--tls-cert and --tls-key require each other"))
	case o.CertFile != "":
		if _, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err != nil {
			errs = append(errs, usererr.Usagef("--tls-cert, --tls-key: %s", usererr.Printable(err.Error())))
		}
	}
	if o.DebugListen != "" {
		if err := daemon.CheckDebugListen(o.DebugListen); err != nil {
			errs = append(errs, usererr.Usagef("--debug-listen %s: %v", usererr.Printable(o.DebugListen), err))
		}
	}
	errs = append(errs, checkPublicURL(o.PublicURL))
	return errors.Join(append(errs, o.checkListen())...)
}

// listenFlags returns the names of given flags that only matter with --listen.
func (o *httpFlags) listenFlags() (names []string) {
	for _, f := range []struct {
		isGiven bool
		name    string
	}{
		{o.CertFile != "", "--tls-cert"}, {o.KeyFile != "", "--tls-key"}, {o.NoAuth, "--no-auth"}, {o.Insecure, "--insecure"},
		{o.BasePath != "", "--base-path"}, {len(o.Proxies) > 0, "--proxy"},
		{o.AdminFile != "", "--admin-secret-file"}, {o.ReadFile != "", "--read-secret-file"},
		{o.MaxSubmissions != 0, "--max-submissions-per-user"},
	} {
		if f.isGiven {
			names = append(names, f.name)
		}
	}
	return names
}

// checkListen refuses an address that is not safe to listen on.
func (o *httpFlags) checkListen() error {
	if o.Listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		return invalidFlag("listen", o.Listen, "HOST:PORT, such as 127.0.0.1:8080")
	}
	if err := access.CheckListen(o.Listen, o.CertFile != "", o.Insecure, o.NoAuth); err != nil {
		hint := "use --tls-cert and --tls-key, or --insecure where something else protects it"
		if o.NoAuth {
			hint = "--no-auth is for 127.0.0.1, ::1 and localhost"
		}
		return &usererr.Error{Kind: usererr.Usage, Text: fmt.Sprintf("--listen: %v", err), Hint: hint}
	}
	return nil
}
