package webhook

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode"

	"github.com/cuelight/cuelight/internal/ssrf"
)

const maxAddress = 2048 // bytes

// checkAddress returns an error for an address that can never be called. Names are
// resolved at each call, not here.
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
		return fmt.Errorf("%w: the address contains a user or a password; use signatures instead", ErrInvalid)
	case u.Fragment != "" || strings.HasSuffix(address, "#"):
		return fmt.Errorf("%w: HTTP does not send the part after #; remove it", ErrInvalid)
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
	isAllowed, isPermitted := false, len(hosts) == 0
	for _, addr := range hosts {
		isPermitted = isPermitted || w.policy.Check(addr) == nil
		isAllowed = isAllowed || w.policy.Allows(addr)
	}
	if !isPermitted {
		return fmt.Errorf("%w: %s", ErrInvalid, ssrf.NotPublic(u.Hostname()))
	}
	if u.Scheme == "http" && !isAllowed && !w.options.AllowHTTP {
		return fmt.Errorf("%w: http is for addresses in allowed networks only; use https", ErrInvalid)
	}
	return nil
}

// addressesOf returns the addresses of a host that needs no name lookup.
func addressesOf(host string) []netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.WithZone("")}
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	return nil
}

func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar
}
