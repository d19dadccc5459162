package access

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The limits of failures: a burst, and then one in each interval.
const (
	addressBurst    = 10
	addressInterval = 6 * time.Second
	overallBurst    = 100
	overallInterval = time.Second / 2

	// maxAddresses limits the number of addresses in memory.
	maxAddresses = 4096

	// digestsMaxAge is how long the list of keys is cached.
	digestsMaxAge = 10 * time.Second
)

// TooManyFailuresError is the error after too many failures. The credentials were not checked.
type TooManyFailuresError struct {
	After time.Duration // the wait before the next try
}

// Error contains the wait.
func (l *TooManyFailuresError) Error() string {
	return fmt.Sprintf("too many failures; try again in %v", l.After.Round(time.Second))
}

// limits count failures.
type limits struct {
	mu      sync.Mutex
	overall *rate.Limiter
	address map[netip.Addr]*rate.Limiter
}

func newLimits() *limits {
	return &limits{
		overall: rate.NewLimiter(rate.Every(overallInterval), overallBurst),
		address: make(map[netip.Addr]*rate.Limiter),
	}
}

// wait is the time until the limits allow another failure from addr; 0 for now.
func (l *limits) wait(addr netip.Addr) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	longest := timeToToken(l.overall, now)
	if a := l.address[addr]; a != nil {
		longest = max(longest, timeToToken(a, now))
	}
	return longest
}

// timeToToken is the time until the limiter has a whole token.
func timeToToken(l *rate.Limiter, now time.Time) time.Duration {
	if missing := 1 - l.TokensAt(now); missing > 0 {
		return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
	}
	return 0
}

// addFailure counts a failure.
func (l *limits) addFailure(addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.overall.AllowN(now, 1)
	a := l.address[addr]
	if a == nil {
		l.makeRoom(now)
		a = rate.NewLimiter(rate.Every(addressInterval), addressBurst)
		l.address[addr] = a
	}
	a.AllowN(now, 1)
}

// makeRoom deletes addresses: first those without recent failures, and then any. The
// overall limit still holds for these.
func (l *limits) makeRoom(now time.Time) {
	if len(l.address) < maxAddresses {
		return
	}
	for addr, a := range l.address {
		if a.TokensAt(now) >= addressBurst {
			delete(l.address, addr)
		}
	}
	for addr := range l.address {
		if len(l.address) < maxAddresses {
			return
		}
		delete(l.address, addr)
	}
}

// digests cache the digests of all valid keys. After too many failures they distinguish
// keys from other texts without a query; the database then decides whether a key is valid.
type digests struct {
	lock chan struct{} // a mutex whose wait ends with a context

	all map[[sha256.Size]byte]struct{}
	at  time.Time // of the last query, even if it failed
}

func newDigests() digests { return digests{lock: make(chan struct{}, 1)} }

// isKey reports whether a digest is that of a key. It reads the keys once in
// digestsMaxAge at most.
func (g *Guard) isKey(ctx context.Context, digest [sha256.Size]byte) bool {
	d := &g.digests
	select {
	case d.lock <- struct{}{}:
		defer func() { <-d.lock }()
	case <-ctx.Done():
		return false
	}
	if g.o.Keys != nil && (d.at.IsZero() || time.Since(d.at) >= digestsMaxAge) {
		g.readDigests(context.WithoutCancel(ctx)) // other requests use them, too
	}
	_, ok := d.all[digest]
	return ok
}

func (g *Guard) readDigests(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	keys, err := g.o.Keys.Keys(ctx)
	if g.digests.at = time.Now(); err != nil {
		return // keep the old ones
	}
	g.digests.all = make(map[[sha256.Size]byte]struct{}, len(keys))
	for _, key := range keys {
		if scopeOf(key) > None {
			g.digests.all[key.Digest] = struct{}{}
		}
	}
}

// clientNetwork is the address of the client (of IPv6 its network). It uses the headers of
// trusted proxies.
func clientNetwork(r *http.Request, proxies []netip.Prefix) netip.Addr {
	addr := AddrOf(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		isTrusted := slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
		next := AddrOf(strings.TrimSpace(hop))
		if !isTrusted || !next.IsValid() {
			break
		}
		addr = next
	}
	return NetworkOf(addr)
}

// NetworkOf is the key of limits per address: an IPv4 address itself, and of an IPv6
// address the network of 64 bits, because one customer may have all addresses in it.
func NetworkOf(addr netip.Addr) netip.Addr {
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return addr
}

// AddrOf parses an address with or without a port. It returns the zero address for
// anything else, such as the address of a Unix socket.
func AddrOf(s string) netip.Addr {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	addr, _ := netip.ParseAddr(strings.Trim(s, "[]"))
	return addr.Unmap().WithZone("")
}
