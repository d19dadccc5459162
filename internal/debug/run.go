package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"
)

const (
	headersWithin = 5 * time.Second
	endWithin     = 5 * time.Second
)

// ErrNotLocal is why an address is refused that others than this host could reach,
// to be matched with [errors.Is].
var ErrNotLocal = errors.New("it is neither a loopback address nor a unix socket")

// Options say where. Addr must be set.
type Options struct {
	// Addr is a loopback address with a port, such as 127.0.0.1:6060, [::1]:6060
	// or localhost:0, or the path of a unix socket, such as
	// /run/cuelight/debug.sock or unix:debug.sock.
	Addr string
	// Ready is called with the address, once it is listened at. Default: nobody
	// is told.
	Ready func(net.Addr)
	// ErrorLog is for errors of connections. Default: they are not logged.
	ErrorLog *log.Logger
}

// Run listens and serves until ctx is done; profiles that are being taken end
// then. It returns nil after that, an error that matches [ErrNotLocal] for an
// address that others could reach, and another where it cannot be listened at.
func Run(ctx context.Context, o Options) error {
	l, err := listen(ctx, o.Addr)
	if err != nil {
		return fmt.Errorf("listen for profiles at %q: %w", o.Addr, err)
	}
	if o.ErrorLog == nil {
		o.ErrorLog = log.New(io.Discard, "", 0)
	}
	srv := &http.Server{
		Handler: local(handler()), ReadHeaderTimeout: headersWithin, ErrorLog: o.ErrorLog,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	if o.Ready != nil {
		o.Ready(l.Addr())
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve profiles: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // a client that does not read has had its time
	}
	<-ended
	return nil
}

// handler has what there is.
func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol) // of many at once
	return mux
}

// local refuses what a page in a browser asks for: by what browsers say of
// that, and by the name that the page gave this address.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "none", "same-origin":
		default:
			http.Error(w, "pages of other sites see nothing here", http.StatusForbidden)
			return
		}
		if !localName(r.Host) {
			http.Error(w, "this is only here under the name localhost, or a loopback address", http.StatusForbidden)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// localName reports whether a host, with or without a port, is this one for
// certain.
func localName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
