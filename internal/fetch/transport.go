package fetch

import (
	"net"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/ssrf"
)

// newTransport returns a transport that connects to public addresses and allowed
// networks only. The caller closes its idle connections. It uses no proxy, because a
// proxy would connect to addresses that the policy does not see.
func newTransport(o Options) *http.Transport {
	policy := ssrf.Policy{Allow: o.Allow, HostAddresses: o.hostAddresses}
	dialer := &net.Dialer{Timeout: 30 * time.Second, Resolver: o.resolver, Control: policy.Control}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}
