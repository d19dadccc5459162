// Package ssrf guards against server-side request forgery: it decides to which
// addresses this host connects on behalf of a user.
//
// A [Policy] permits public addresses and the networks that the operator allows. Use
// [Policy.Control] as the Control of a [net.Dialer], and [Policy.Check] for an address
// that a user enters. The package makes no connections, and it does not restrict ports.
package ssrf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrProhibited matches the errors of addresses that a policy does not permit.
var ErrProhibited = ssrf.ErrProhibitedIP

// Policy decides which addresses may be connected to. It prohibits every special
// address of IANA's registries, and the addresses of this host, because its firewall may
// trust local connections.
//
// It also prohibits the addresses at which cloud providers hand out credentials, and
// their IPv6 translations, even inside an allowed network.
type Policy struct {
	// Allow lists networks that are permitted nevertheless. To permit a credentials
	// address, list exactly that address.
	Allow []netip.Prefix
	// HostAddresses returns the addresses of this host. Default [net.InterfaceAddrs].
	// If it fails, as in a sandbox without netlink, no address is permitted: a public
	// address may be this host's own.
	HostAddresses func() ([]net.Addr, error)
}

// Control returns an error for an address that the policy does not permit. The dialer
// calls it after each name lookup, immediately before it connects, so a name cannot
// change its address after the check.
func (p Policy) Control(network, address string, conn syscall.RawConn) error {
	guardian, err := p.guardian()
	if err != nil {
		return err
	}
	return guardian.Safe(network, address, conn)
}

// Check returns an error for an address that the policy does not permit.
func (p Policy) Check(addr netip.Addr) error {
	guardian, err := p.guardian()
	if err != nil {
		return err
	}
	return guardian.SafeAddr(addr)
}

// Allows reports whether addr is in a network of Allow.
func (p Policy) Allows(addr netip.Addr) bool {
	return slices.ContainsFunc(p.Allow, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// Describe returns the message for a user if err says that an address is prohibited.
func Describe(err error) (message string, ok bool) {
	if op, isOp := errors.AsType[*net.OpError](err); isOp && errors.Is(err, ErrProhibited) {
		return NotPublic(op.Addr.String()), true
	}
	return "", false
}

// NotPublic is the message for a user that address is prohibited.
func NotPublic(address string) string {
	return address + " is not a public address, and no allowed network contains it"
}

// guardian is made for each check because the addresses of the host can change.
func (p Policy) guardian() (*ssrf.Guardian, error) {
	own, err := p.hostPrefixes()
	if err != nil {
		return nil, err
	}
	credentials := credentialPrefixes(p.Allow)
	allow4, allow6 := splitByFamily(subtract(p.Allow, credentials))
	deny4, deny6 := splitByFamily(append(own, credentials...))
	return ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(allow4...), ssrf.WithAllowedV6Prefixes(allow6...),
		ssrf.WithDeniedV4Prefixes(deny4...), ssrf.WithDeniedV6Prefixes(deny6...),
	), nil
}

func (p Policy) hostPrefixes() ([]netip.Prefix, error) {
	list := p.HostAddresses
	if list == nil {
		list = net.InterfaceAddrs
	}
	addrs, err := list()
	if err != nil {
		return nil, fmt.Errorf("list this host's own addresses, which are prohibited: %w", err)
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

// credentialAddresses are where cloud providers hand out a machine's credentials. One is
// in a public range. The others may be in networks that are allowed for other reasons.
var credentialAddresses = []netip.Addr{
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

// translations are the IPv6 prefixes that embed an IPv4 address (mapped, NAT64, 6to4),
// with the offset of its first byte.
var translations = []struct {
	prefix netip.Addr
	offset int
}{
	{netip.MustParseAddr("::ffff:0:0"), 12},
	{netip.MustParseAddr("64:ff9b::"), 12},
	{netip.MustParseAddr("2002::"), 2},
}

// credentialPrefixes returns the prohibited prefixes of the credential addresses: all
// that allow does not list exactly.
func credentialPrefixes(allow []netip.Prefix) (prohibited []netip.Prefix) {
	for _, addr := range credentialAddresses {
		prefixes := []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen())}
		if slices.Contains(allow, prefixes[0]) {
			continue
		}
		if addr.Is4() {
			v4 := addr.As4()
			for _, t := range translations {
				b := t.prefix.As16()
				copy(b[t.offset:], v4[:])
				prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom16(b), 8*(t.offset+4)))
			}
		}
		for _, p := range prefixes {
			if !slices.Contains(allow, p) {
				prohibited = append(prohibited, p)
			}
		}
	}
	return prohibited
}

// subtract returns networks without the excluded parts. It halves a network until no
// half contains an excluded part, because the guardian checks allowed networks first.
func subtract(networks, excluded []netip.Prefix) (remaining []netip.Prefix) {
	for _, n := range networks {
		i := slices.IndexFunc(excluded, func(p netip.Prefix) bool { return n.Overlaps(p) })
		switch {
		case i < 0:
			remaining = append(remaining, n)
		case n.Bits() < excluded[i].Bits():
			remaining = append(remaining, subtract(halves(n), excluded)...)
		}
	}
	return remaining
}

func halves(n netip.Prefix) []netip.Prefix {
	n = n.Masked()
	low := netip.PrefixFrom(n.Addr(), n.Bits()+1)
	b := n.Addr().AsSlice()
	b[n.Bits()/8] |= 0x80 >> (n.Bits() % 8)
	high, _ := netip.AddrFromSlice(b) // b has the length of an address
	return []netip.Prefix{low, netip.PrefixFrom(high, n.Bits()+1)}
}

func splitByFamily(prefixes []netip.Prefix) (v4, v6 []netip.Prefix) {
	for _, p := range prefixes {
		if p.Addr().Is4() {
			v4 = append(v4, p.Masked())
		} else {
			v6 = append(v6, p.Masked())
		}
	}
	return v4, v6
}
