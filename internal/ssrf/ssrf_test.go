package ssrf_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/cuelight/cuelight/internal/ssrf"
)

func TestPolicy_ProhibitsTheHostsOwnPublicAddresses(t *testing.T) {
	t.Parallel()
	own := func() ([]net.Addr, error) {
		return []net.Addr{
			&net.IPNet{IP: net.ParseIP("8.8.8.8"), Mask: net.CIDRMask(24, 32)},
			&net.IPNet{IP: net.ParseIP("2600::1"), Mask: net.CIDRMask(64, 128)},
		}, nil
	}
	strict := ssrf.Policy{HostAddresses: own}
	allowing := ssrf.Policy{HostAddresses: own, Allow: []netip.Prefix{
		netip.MustParsePrefix("8.8.8.0/24"), netip.MustParsePrefix("2600::/64"), netip.MustParsePrefix("10.1.0.0/16"),
	}}
	for addr, prohibited := range map[string]struct{ strict, allowing bool }{
		"8.8.8.8": {true, false}, "8.8.8.9": {false, false}, "2600::1": {true, false}, "2600::2": {false, false},
		"10.1.2.3": {true, false}, "10.2.2.3": {true, true}, "127.0.0.1": {true, true}, "::1": {true, true},
		"169.254.169.254": {true, true},
	} {
		a := netip.MustParseAddr(addr)
		if err := strict.Check(a); (err != nil) != prohibited.strict {
			t.Errorf("%s: %v", addr, err)
		}
		if err := allowing.Check(a); (err != nil) != prohibited.allowing {
			t.Errorf("%s with allowed networks: %v", addr, err)
		}
	}
}

func TestPolicy_PermitsNothingIfTheHostsAddressesAreUnknown(t *testing.T) {
	t.Parallel()
	why := errors.New("no netlink")
	public := netip.MustParseAddr("8.8.8.8")
	unknown := ssrf.Policy{HostAddresses: func() ([]net.Addr, error) { return nil, why }}
	if err := unknown.Check(public); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if err := (ssrf.Policy{}).Check(public); err != nil {
		t.Error(err)
	}
}

// The test calls the policy only and sends nothing to these addresses.
func TestPolicy_ProhibitsCredentialAddressesInAllowedNetworks(t *testing.T) {
	t.Parallel()
	none := func() ([]net.Addr, error) { return nil, nil }
	checker := func(allow ...string) func(string) error {
		t.Helper()
		var prefixes []netip.Prefix
		for _, p := range allow {
			prefixes = append(prefixes, netip.MustParsePrefix(p))
		}
		p := ssrf.Policy{Allow: prefixes, HostAddresses: none}
		return func(addr string) error { return p.Check(netip.MustParseAddr(addr)) }
	}
	nothing := checker()
	everything := checker("0.0.0.0/0", "::/0")
	some := checker("168.63.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "fd00::/8", "64:ff9b::/96", "2002::/16")
	for _, addr := range []string{
		"168.63.129.16", "100.100.100.200", "169.254.169.254", "169.254.170.2", "192.0.0.192", "fd00:ec2::254",
		"fd20:ce::254", "::ffff:168.63.129.16", "::ffff:169.254.169.254", "64:ff9b::168.63.129.16",
		"64:ff9b::a9fe:a9fe", "2002:a83f:8110::1", "2002:a9fe:a9fe::",
	} {
		for name, check := range map[string]func(string) error{"nothing": nothing, "everything": everything, "some": some} {
			if check(addr) == nil {
				t.Errorf("%s allowed: %s is permitted", name, addr)
			}
		}
	}
	for _, addr := range []string{"168.63.129.15", "168.63.129.17", "168.63.128.16", "8.8.8.8", "2600::1"} {
		if err := nothing(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{
		"168.63.129.17", "100.100.100.199", "100.64.0.0", "100.127.255.255", "169.254.169.255", "fd00::1",
		"fd00:ec2::253", "fdff::1", "64:ff9b::8.8.8.8", "2002:808:808::1",
	} {
		if err := some(addr); err != nil {
			t.Errorf("%s in an allowed network: %v", addr, err)
		}
	}
	for _, addr := range []string{"0.0.0.0", "10.1.2.3", "255.255.255.255", "::1", "ffff::1"} {
		if err := everything(addr); err != nil {
			t.Errorf("%s with everything allowed: %v", addr, err)
		}
	}
	if err := checker("168.63.129.16/32")("168.63.129.16"); err != nil {
		t.Errorf("the address itself is allowed: %v", err)
	}
	if checker("168.63.129.16/32")("169.254.169.254") == nil {
		t.Error("another credentials address is allowed with it")
	}
}
