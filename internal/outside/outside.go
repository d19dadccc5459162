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
	"slices"

	"code.dny.dev/ssrf"
)

// metadata are the addresses at which cloud providers tell a machine its credentials.
// One of them is in a public range, and the others may be in networks that are
// allowed for other reasons.
var metadata = []netip.Addr{
	netip.MustParseAddr("168.63.129.16"),   // Azure, WireServer
	netip.MustParseAddr("169.254.169.254"), // most
	netip.MustParseAddr("169.254.170.2"),   // AWS, containers
	netip.MustParseAddr("169.254.170.23"),  // AWS, pods
	netip.MustParseAddr("169.254.42.42"),   // Scaleway
	netip.MustParseAddr("169.254.0.23"),    // Tencent
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS, pods
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("fd00:42::42"),     // Scaleway
}

// translated are the prefixes of IPv6 below which an IPv4 address is meant, with the
// byte at which it begins: as it is mapped, by NAT64, and by 6to4.
var translated = []struct {
	prefix netip.Addr
	at     int
}{
	{netip.MustParseAddr("::ffff:0:0"), 12},
	{netip.MustParseAddr("64:ff9b::"), 12},
	{netip.MustParseAddr("2002::"), 2},
}

// Guardian refuses every address that is special in IANA's registries, and those of
// the host itself, whose firewall may trust what comes from within, unless its
// network is allowed. Ports are not restricted.
//
// The addresses at which cloud providers tell a machine its credentials are refused
// in any network, also as IPv6 that is translated to them, unless one of allow is that
// address alone.
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
	secret := forbidden(allow)
	allow4, allow6 := byFamily(without(allow, secret))
	own4, own6 := byFamily(append(own, secret...))
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

// forbidden are the networks that metadata is at, save those that are allowed by
// themselves.
func forbidden(allow []netip.Prefix) (out []netip.Prefix) {
	for _, addr := range metadata {
		all := []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen())}
		if slices.Contains(allow, all[0]) {
			continue
		}
		if addr.Is4() {
			v4 := addr.As4()
			for _, t := range translated {
				b := t.prefix.As16()
				copy(b[t.at:], v4[:])
				all = append(all, netip.PrefixFrom(netip.AddrFrom16(b), 8*(t.at+4)))
			}
		}
		for _, p := range all {
			if !slices.Contains(allow, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// without are the networks of which parts are taken out: what is left of each, in
// halves, since what is allowed comes before what is denied.
func without(networks, parts []netip.Prefix) (left []netip.Prefix) {
	for _, n := range networks {
		inside := slices.IndexFunc(parts, func(p netip.Prefix) bool { return n.Overlaps(p) })
		switch {
		case inside < 0:
			left = append(left, n)
		case n.Bits() < parts[inside].Bits():
			left = append(left, without(halves(n), parts)...)
		}
	}
	return left
}

func halves(n netip.Prefix) []netip.Prefix {
	n = n.Masked()
	low := netip.PrefixFrom(n.Addr(), n.Bits()+1)
	b := n.Addr().AsSlice()
	b[n.Bits()/8] |= 0x80 >> (n.Bits() % 8)
	high, _ := netip.AddrFromSlice(b) // it has the length of an address
	return []netip.Prefix{low, netip.PrefixFrom(high, n.Bits()+1)}
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
