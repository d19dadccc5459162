package access

import (
	"errors"
	"fmt"
	"net"
)

// CheckListen returns an error if a server must not listen on addr, HOST:PORT. It may
// listen
//
//   - on a loopback address always;
//   - on any other only with TLS, or if insecure means that something else, such as a
//     proxy, protects the traffic;
//   - without authentication on a loopback address only.
//
// An empty host, or a name other than localhost, does not count as loopback.
func CheckListen(addr string, tls, insecure, noAuth bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", addr, err)
	}
	switch {
	case IsLoopbackName(host):
		return nil
	case noAuth:
		return fmt.Errorf("listen on %q: %w", addr, ErrNeedsAuthentication)
	case !tls && !insecure:
		return fmt.Errorf("listen on %q: %w", addr, ErrNeedsTLS)
	}
	return nil
}

// The errors of [CheckListen].
var (
	// ErrNeedsAuthentication means that other hosts could do everything without authentication.
	ErrNeedsAuthentication = errors.New("a server without authentication can listen on a loopback address only")
	// ErrNeedsTLS means that secrets would go over the network in plain text.
	ErrNeedsTLS = errors.New("an address that is not loopback needs TLS")
)

// CheckListener is CheckListen for the address of an open listener, after its name was
// resolved.
func CheckListener(addr net.Addr, tls, insecure, noAuth bool) error {
	if addr.Network() == "unix" {
		return nil
	}
	return CheckListen(addr.String(), tls, insecure, noAuth)
}
