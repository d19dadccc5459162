package webhook

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"
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

// now is made anew each time, as the host's addresses may change. Where they
// cannot be listed nothing is called: one of them may be public, and lead to what
// trusts this host.
func (g guard) now() (*ssrf.Guardian, error) {
	addrs, err := g.addresses()
	if err != nil {
		return nil, fmt.Errorf("list this host's own addresses, which are not called: %w", err)
	}
	var own []netip.Prefix
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addr = addr.Unmap()
				own = append(own, netip.PrefixFrom(addr, addr.BitLen()))
			}
		}
	}
	allow4, allow6 := byFamily(g.allow)
	own4, own6 := byFamily(own)
	return ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(allow4...), ssrf.WithAllowedV6Prefixes(allow6...),
		ssrf.WithDeniedV4Prefixes(own4...), ssrf.WithDeniedV6Prefixes(own6...),
	), nil
}

func byFamily(prefixes []netip.Prefix) (v4, v6 []netip.Prefix) {
	for _, p := range prefixes {
		if p.Addr().Is4() {
			v4 = append(v4, p.Masked())
		} else {
			v6 = append(v6, p.Masked())
		}
	}
	return v4, v6
}
