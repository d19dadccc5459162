// Package debug serves the profiles of net/http/pprof under /debug/pprof/ to clients on
// the same host, with a listener of its own.
//
//	err := debug.Run(ctx, debug.Options{Addr: "127.0.0.1:6060"})
//
//	go tool pprof http://127.0.0.1:6060/debug/pprof/profile
//	curl --unix-socket /run/cuelight/debug.sock http://localhost/debug/pprof/goroutine?debug=2
//
// # Guarantees
//
//   - Other hosts cannot connect: it listens on a loopback address or on a Unix socket
//     that only this user can open.
//   - Pages in a browser on this host have no access, whatever host name they use.
//   - The profiles are on no other handler, and [http.DefaultServeMux] is not served.
//   - Run returns when everything it has started has ended.
//
// # Limits
//
// It has no authentication: all users of the host can connect to a loopback address,
// one user to a socket. It does not serve the command line, which may contain a
// password.
package debug
