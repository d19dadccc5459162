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
	headerTimeout   = 5 * time.Second
	shutdownTimeout = 5 * time.Second
)

// ErrNotLocal means that other hosts could reach the address.
var ErrNotLocal = errors.New("it is neither a loopback address nor a Unix socket")

// Options say where to listen. Only Addr is required.
type Options struct {
	// Addr is a loopback address with a port, such as 127.0.0.1:6060, [::1]:6060
	// or localhost:0, or the path of a Unix socket, such as
	// /run/cuelight/debug.sock or unix:debug.sock.
	Addr string
	// Ready is called with the address when the listener is open. Default: no call.
	Ready func(net.Addr)
	// ErrorLog gets the errors of connections. Default: they are not logged.
	ErrorLog *log.Logger
}

// Run listens and serves until ctx is done, which ends running profiles, and then
// returns nil. It returns [ErrNotLocal] for an address that other hosts could reach, and
// other errors if it cannot listen.
func Run(ctx context.Context, o Options) error {
	l, err := listen(ctx, o.Addr)
	if err != nil {
		return fmt.Errorf("listen for profiles on %q: %w", o.Addr, err)
	}
	if o.ErrorLog == nil {
		o.ErrorLog = log.New(io.Discard, "", 0)
	}
	srv := &http.Server{
		Handler: rejectPages(handler()), ReadHeaderTimeout: headerTimeout, ErrorLog: o.ErrorLog,
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
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // a client does not read
	}
	<-ended
	return nil
}

// handler has the profiles, without the command line.
func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol) // of several addresses
	return mux
}

// rejectPages rejects requests of pages in a browser. It recognises them by the header
// that browsers add, and by the host name of the request.
func rejectPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "none", "same-origin":
		default:
			http.Error(w, "pages of other sites have no access", http.StatusForbidden)
			return
		}
		if !isLocalName(r.Host) {
			http.Error(w, "use the name localhost or a loopback address", http.StatusForbidden)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// isLocalName reports whether a host name, with or without a port, always means this
// host.
func isLocalName(host string) bool {
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
