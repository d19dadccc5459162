package fetch

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"code.dny.dev/ssrf"
)

// newTransport connects to public addresses and to the allowed networks only,
// and shares nothing with others of its kind. The caller closes its idle
// connections.
func newTransport(o Options) (*http.Transport, error) {
	own, err := ownAddresses(o.addresses)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{
		Timeout:  30 * time.Second,
		Resolver: o.resolver,
		// Called with the address itself after every look-up, for every
		// attempt, immediately before connecting: there is no later moment at
		// which a name could turn out to mean something else.
		Control: newGuard(o.Allow, own).Safe,
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}, nil
}

// newGuard refuses every address that is special in IANA's registries, and
// those of the host itself, whose firewall may trust what comes from within.
// Ports are not restricted: media is served on many.
func newGuard(allow, own []netip.Prefix) *ssrf.Guardian {
	allow4, allow6 := byFamily(allow)
	own4, own6 := byFamily(own)
	return ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithAllowedV4Prefixes(allow4...), ssrf.WithAllowedV6Prefixes(allow6...),
		ssrf.WithDeniedV4Prefixes(own4...), ssrf.WithDeniedV6Prefixes(own6...),
	)
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

// ownAddresses are those of this host's interfaces. Where they cannot be
// listed, as in a sandbox without netlink, nothing is downloaded: one of them
// may be public, and lead to what trusts this host.
func ownAddresses(list func() ([]net.Addr, error)) ([]netip.Prefix, error) {
	addrs, err := list()
	if err != nil {
		return nil, fmt.Errorf("list this host's own addresses, which are not downloaded from: %w", err)
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
