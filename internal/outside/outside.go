// Package outside says which addresses a host that is reachable from within may
// call on behalf of strangers: public ones, and networks that its operator allows.
//
// [Guardian] belongs in a net.Dialer's Control, where every address is seen that is
// connected to, after redirects and whatever a name turned out to mean. It makes no
// connection itself.
package outside

import (
	"fmt"
	"net"
	"net/netip"

	"code.dny.dev/ssrf"
)

// Guardian refuses every address that is special in IANA's registries, and those of
// the host itself, whose firewall may trust what comes from within, unless its
// network is allowed. Ports are not restricted.
//
// The host's addresses are those that list returns now: [net.InterfaceAddrs]. Where
// they cannot be listed, as in a sandbox without netlink, it returns an error, and
// nothing should be called: one of them may be public, and lead to what trusts this
// host.
func Guardian(allow []netip.Prefix, list func() ([]net.Addr, error)) (*ssrf.Guardian, error) {
	own, err := ownAddresses(list)
	if err != nil {
		return nil, err
	}
	allow4, allow6 := byFamily(allow)
	own4, own6 := byFamily(own)
	return ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(allow4...), ssrf.WithAllowedV6Prefixes(allow6...),
		ssrf.WithDeniedV4Prefixes(own4...), ssrf.WithDeniedV6Prefixes(own6...),
	), nil
}

func ownAddresses(list func() ([]net.Addr, error)) ([]netip.Prefix, error) {
	addrs, err := list()
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
	return own, nil
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
