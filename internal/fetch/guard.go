package fetch

import (
	"net"
	"net/http"
	"net/netip"
	"time"

	"code.dny.dev/ssrf"
)

// newTransport connects to public addresses and to the allowed networks only,
// and shares nothing with others of its kind. The caller closes its idle
// connections.
func newTransport(o Options) *http.Transport {
	dialer := &net.Dialer{
		Timeout:  30 * time.Second,
		Resolver: o.resolver,
		// Called with the address itself after every look-up, for every
		// attempt, immediately before connecting: there is no later moment at
		// which a name could turn out to mean something else.
		Control: newGuard(o.Allow, ownAddresses()).Safe,
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
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

// ownAddresses are those of this host's interfaces. A host that cannot list
// them is still guarded against all that are not public.
func ownAddresses() []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
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
	return own
}
