package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/access"
)

// CheckDebugListen returns an error unless an address to serve profiles at is a loopback address with a port. The profiles need no
// password: every user of this host can read them.
func CheckDebugListen(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err == nil && !access.IsLoopbackName(host) {
		err = errors.New("it is no loopback address")
	}
	return err
}

// profilesHandler serves the profiles of net/http/pprof, without the command line, which may have a password. Pages in a
// browser on this host have no access, whatever host name they use.
func profilesHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if err := CheckDebugListen(r.Host); err != nil || site != "" && site != "none" && site != "same-origin" {
			http.Error(w, "use a loopback address; pages of other sites have no access", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// serveProfiles serves until ctx is done, which ends running profiles.
func serveProfiles(ctx context.Context, addr string, log *zap.Logger) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	// The host's configuration decides about the address of the name localhost.
	if err := CheckDebugListen(l.Addr().String()); err != nil {
		return errors.Join(err, l.Close())
	}
	log.Info("serving profiles", zap.Stringer("address", l.Addr()))
	srv := &http.Server{
		Handler: profilesHandler(), ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
