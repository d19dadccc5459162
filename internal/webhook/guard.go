package webhook

import (
	"net"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"

	"github.com/cuelight/cuelight/internal/outside"
)

// guard refuses every address that is special in IANA's registries, and those of
// the host itself, whose firewall may trust what comes from within, unless its
// network is allowed. Ports are not restricted: receivers have many.
type guard struct {
	allow     []netip.Prefix
	addresses func() ([]net.Addr, error)
}

// control is called with the address itself after every look-up, for every
// attempt, immediately before connecting: there is no later moment at which a
// name could turn out to mean something else.
func (g guard) control(network, address string, conn syscall.RawConn) error {
	now, err := g.now()
	if err != nil {
		return err
	}
	return now.Safe(network, address, conn)
}

// check is for an address that is written down.
func (g guard) check(addr netip.Addr) error {
	now, err := g.now()
	if err != nil {
		return err
	}
	return now.SafeAddr(addr)
}

// allowed reports whether the operator has named the address's network.
func (g guard) allowed(addr netip.Addr) bool {
	for _, p := range g.allow {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// now is made anew each time, as the host's addresses may change.
func (g guard) now() (*ssrf.Guardian, error) { return outside.Guardian(g.allow, g.addresses) }
