package access

import (
	"errors"
	"fmt"
	"net"
)

// CheckListen says whether a server may listen at addr, HOST:PORT:
//
//   - at a loopback address always;
//   - at any other only with TLS, or where insecure says that something else, such
//     as a proxy, protects what goes over the network;
//   - without authentication at a loopback address only.
//
// A name other than localhost is taken for another address, and so is none.
func CheckListen(addr string, tls, insecure, noAuth bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen at %q: %w", addr, err)
	}
	switch {
	case isLoopbackName(host):
		return nil
	case noAuth:
		return fmt.Errorf("listen at %q: %w", addr, ErrOpenToAll)
	case !tls && !insecure:
		return fmt.Errorf("listen at %q: %w", addr, ErrPlain)
	}
	return nil
}

// Why [CheckListen] refuses an address, to be matched with [errors.Is].
var (
	// ErrOpenToAll: without authentication, others could do everything.
	ErrOpenToAll = errors.New("without authentication only a loopback address can be listened at")
	// ErrPlain: secrets would go over the network in plain text.
	ErrPlain = errors.New("an address that is not loopback needs TLS")
)

// CheckListener says the same of a listener that is open: whatever its name was
// resolved to.
func CheckListener(addr net.Addr, tls, insecure, noAuth bool) error {
	if addr.Network() == "unix" {
		return nil
	}
	return CheckListen(addr.String(), tls, insecure, noAuth)
}
