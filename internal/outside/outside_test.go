package outside_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/cuelight/cuelight/internal/outside"
)

func TestHostsOwnPublicAddressIsNotPublic(t *testing.T) {
	t.Parallel()
	own := func() ([]net.Addr, error) {
		return []net.Addr{
			&net.IPNet{IP: net.ParseIP("8.8.8.8"), Mask: net.CIDRMask(24, 32)},
			&net.IPNet{IP: net.ParseIP("2600::1"), Mask: net.CIDRMask(64, 128)},
		}, nil
	}
	strict, err := outside.Guardian(nil, own)
	if err != nil {
		t.Fatal(err)
	}
	lenient, err := outside.Guardian([]netip.Prefix{netip.MustParsePrefix("8.8.8.0/24"), netip.MustParsePrefix("2600::/64"), netip.MustParsePrefix("10.1.0.0/16")}, own)
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]struct{ refused, though bool }{
		"8.8.8.8": {true, false}, "8.8.8.9": {false, false}, "2600::1": {true, false}, "2600::2": {false, false},
		"10.1.2.3": {true, false}, "10.2.2.3": {true, true}, "127.0.0.1": {true, true}, "::1": {true, true}, "169.254.169.254": {true, true},
	} {
		at := netip.MustParseAddr(addr)
		if err := strict.SafeAddr(at); (err != nil) != want.refused {
			t.Errorf("%s: %v", addr, err)
		}
		if err := lenient.SafeAddr(at); (err != nil) != want.though {
			t.Errorf("%s where its network is allowed: %v", addr, err)
		}
	}
}

func TestNothingIsToBeCalledWhereTheHostCannotListItsAddresses(t *testing.T) {
	t.Parallel()
	why := errors.New("no netlink")
	if g, err := outside.Guardian(nil, func() ([]net.Addr, error) { return nil, why }); g != nil || !errors.Is(err, why) {
		t.Errorf("got %v, %v", g, err)
	}
	if _, err := outside.Guardian(nil, net.InterfaceAddrs); err != nil {
		t.Error(err)
	}
}

// Nothing is sent there: only the rule is asked.
func TestMetadataOfProvidersIsRefusedInAnyNetwork(t *testing.T) {
	t.Parallel()
	none := func() ([]net.Addr, error) { return nil, nil }
	guard := func(allow ...string) func(string) error {
		t.Helper()
		var prefixes []netip.Prefix
		for _, p := range allow {
			prefixes = append(prefixes, netip.MustParsePrefix(p))
		}
		g, err := outside.Guardian(prefixes, none)
		if err != nil {
			t.Fatal(err)
		}
		return func(addr string) error { return g.SafeAddr(netip.MustParseAddr(addr)) }
	}
	strict := guard()
	wide := guard("0.0.0.0/0", "::/0")
	some := guard("168.63.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "fd00::/8", "64:ff9b::/96", "2002::/16")
	for _, addr := range []string{
		"168.63.129.16", "100.100.100.200", "169.254.169.254", "169.254.170.2", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
		"::ffff:168.63.129.16", "::ffff:169.254.169.254", "64:ff9b::168.63.129.16", "64:ff9b::a9fe:a9fe", "2002:a83f:8110::1", "2002:a9fe:a9fe::",
	} {
		for name, safe := range map[string]func(string) error{"strict": strict, "wide": wide, "some": some} {
			if safe(addr) == nil {
				t.Errorf("%s: %s may be called", name, addr)
			}
		}
	}
	for _, addr := range []string{"168.63.129.15", "168.63.129.17", "168.63.128.16", "8.8.8.8", "2600::1"} {
		if err := strict(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"168.63.129.17", "100.100.100.199", "100.64.0.0", "100.127.255.255", "169.254.169.255", "fd00::1", "fd00:ec2::253", "fdff::1", "64:ff9b::8.8.8.8", "2002:808:808::1"} {
		if err := some(addr); err != nil {
			t.Errorf("%s in a network that is allowed: %v", addr, err)
		}
	}
	for _, addr := range []string{"0.0.0.0", "10.1.2.3", "255.255.255.255", "::1", "ffff::1"} {
		if err := wide(addr); err != nil {
			t.Errorf("%s where everything is allowed: %v", addr, err)
		}
	}
	if err := guard("168.63.129.16/32")("168.63.129.16"); err != nil {
		t.Errorf("allowed by itself: %v", err)
	}
	if guard("168.63.129.16/32")("169.254.169.254") == nil {
		t.Error("another is allowed with it")
	}
}
