// Package debug shows what this process is doing to somebody on the same host:
// the profiles of net/http/pprof under /debug/pprof/, at a listener of their own.
//
//	err := debug.Run(ctx, debug.Options{Addr: "127.0.0.1:6060"})
//
//	go tool pprof http://127.0.0.1:6060/debug/pprof/profile
//	curl --unix-socket /run/cuelight/debug.sock http://localhost/debug/pprof/goroutine?debug=2
//
// # What it promises
//
//   - Nobody on another host gets there: it listens at a loopback address or a
//     unix socket, which is for this user alone, and at nothing else.
//   - No page in a browser of this host gets there either, whatever name it gave
//     that address.
//   - It is on no other handler, and [http.DefaultServeMux] is not served.
//   - Run returns when all it has started has ended.
//
// # What it does not do
//
// It has no authentication: a loopback address is for all users of the host, a
// socket for one. It does not tell the command line, which may hold a password.
package debug
