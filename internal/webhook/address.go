package webhook

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode"
)

// addressMost is how long a webhook's address may be, in bytes.
const maxAddress = 2048

// checkAddress returns why address cannot be a webhook's. What a name means is
// looked at when it is called; here only what is certain to be refused then.
func (w *Webhooks) checkAddress(address string) error {
	u, err := url.Parse(address)
	switch {
	case len(address) > maxAddress:
		return fmt.Errorf("%w: the address is longer than %d bytes", ErrInvalid, maxAddress)
	case err != nil || strings.IndexFunc(address, isUnprintable) >= 0:
		return fmt.Errorf("%w: the address is not a URL", ErrInvalid)
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%w: the address must begin with https://", ErrInvalid)
	case u.Hostname() == "" || u.Opaque != "":
		return fmt.Errorf("%w: the address names no host", ErrInvalid)
	case u.User != nil:
		return fmt.Errorf("%w: the address has a user or a password in it: signatures are there for that", ErrInvalid)
	case u.Fragment != "" || strings.HasSuffix(address, "#"):
		return fmt.Errorf("%w: what is after # is never sent", ErrInvalid)
	case u.Port() == "" && strings.HasSuffix(u.Host, ":"):
		return fmt.Errorf("%w: the address has no port after the colon", ErrInvalid)
	}
	if port := u.Port(); port != "" {
		if _, err := netip.ParseAddrPort("[::]:" + port); err != nil || port == "0" {
			return fmt.Errorf("%w: there is no port %s", ErrInvalid, port)
		}
	}
	return w.checkHost(u)
}

func (w *Webhooks) checkHost(u *url.URL) error {
	hosts := addressesOf(u.Hostname())
	allowed, reachable := false, len(hosts) == 0
	for _, addr := range hosts {
		err := w.policy.Check(addr)
		reachable = reachable || err == nil
		allowed = allowed || w.policy.Allows(addr)
	}
	if !reachable {
		return fmt.Errorf("%w: %s is not a public address, and its network is not among those allowed", ErrInvalid, u.Hostname())
	}
	if u.Scheme == "http" && !allowed && !w.options.AllowHTTP {
		return fmt.Errorf("%w: http is for addresses in allowed networks only; use https", ErrInvalid)
	}
	return nil
}

// literal are the addresses of a host that needs no looking up.
func addressesOf(host string) []netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.WithZone("")}
	}
	if host = strings.ToLower(strings.TrimSuffix(host, ".")); host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	return nil
}

func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar
}
