package fetch

import (
	"net"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/outside"
)

// newTransport connects to public addresses and to the allowed networks only,
// and shares nothing with others of its kind. The caller closes its idle
// connections.
func newTransport(o Options) (*http.Transport, error) {
	guardian, err := outside.Guardian(o.Allow, o.addresses)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{
		Timeout:  30 * time.Second,
		Resolver: o.resolver,
		// Called with the address itself after every look-up, for every
		// attempt, immediately before connecting: there is no later moment at
		// which a name could turn out to mean something else.
		Control: guardian.Safe,
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}, nil
}
