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
