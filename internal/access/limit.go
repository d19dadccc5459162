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

// How often somebody may be wrong: a number at once, and then one every so often.
const (
	addressBurst = 10
	addressEvery = 6 * time.Second
	overallBurst = 100
	overallEvery = time.Second / 2

	// mostAddresses bounds what is remembered of addresses.
	mostAddresses = 4096

	// listFor is for how long it is remembered which keys there are.
	listFor = 10 * time.Second
)

// Limited says that there were too many failures, so nothing was looked at.
type Limited struct {
	After time.Duration // when it may be tried again
}

// Error says when to come back.
func (l *Limited) Error() string {
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
		overall: rate.NewLimiter(rate.Every(overallEvery), overallBurst),
		address: make(map[netip.Addr]*rate.Limiter),
	}
}

// wait is how long until somebody at addr may be wrong again; 0 for now.
func (l *limits) wait(addr netip.Addr) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	longest := until(l.overall, now)
	if a := l.address[addr]; a != nil {
		longest = max(longest, until(a, now))
	}
	return longest
}

// until is when the limiter has a whole token.
func until(l *rate.Limiter, now time.Time) time.Duration {
	if missing := 1 - l.TokensAt(now); missing > 0 {
		return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
	}
	return 0
}

func (l *limits) wrong(addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.overall.AllowN(now, 1)
	a := l.address[addr]
	if a == nil {
		l.makeRoom(now)
		a = rate.NewLimiter(rate.Every(addressEvery), addressBurst)
		l.address[addr] = a
	}
	a.AllowN(now, 1)
}

// makeRoom forgets addresses: those that have been quiet for long enough; and
// where all of these are not, any: the limit for all together holds then.
func (l *limits) makeRoom(now time.Time) {
	if len(l.address) < mostAddresses {
		return
	}
	for addr, a := range l.address {
		if a.TokensAt(now) >= addressBurst {
			delete(l.address, addr)
		}
	}
	for addr := range l.address {
		if len(l.address) < mostAddresses {
			return
		}
		delete(l.address, addr)
	}
}

// digests are those of the keys that there are, as they were a moment ago. They tell
// whoever has a key from strangers where too much was wrong; that it is valid, the
// database says.
type digests struct {
	turn chan struct{} // held by whoever looks or reads

	all map[[sha256.Size]byte]struct{}
	at  time.Time // when they were read last, or could not be
}

func newDigests() digests { return digests{turn: make(chan struct{}, 1)} }

// isKey reports whether what was shown is a key, without asking the database more
// often than every so often.
func (g *Guard) isKey(ctx context.Context, digest [sha256.Size]byte) bool {
	d := &g.digests
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return false
	}
	if g.o.Keys != nil && (d.at.IsZero() || time.Since(d.at) >= listFor) {
		g.readDigests(context.WithoutCancel(ctx)) // they are for others, too
	}
	_, ok := d.all[digest]
	return ok
}

func (g *Guard) readDigests(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookIn)
	defer cancel()
	keys, err := g.o.Keys.Keys(ctx)
	if g.digests.at = time.Now(); err != nil {
		return // as they were
	}
	g.digests.all = make(map[[sha256.Size]byte]struct{}, len(keys))
	for _, key := range keys {
		if scopeOf(key) > None {
			g.digests.all[key.Digest] = struct{}{}
		}
	}
}

// remote is the address that a request comes from, as far as it tells people
// apart: of IPv6 the network, of which anybody has 2⁶⁴ addresses. What proxies say
// counts where they are ours.
func remote(r *http.Request, proxies []netip.Prefix) netip.Addr {
	addr := AddrOf(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		ours := slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
		next := AddrOf(strings.TrimSpace(hop))
		if !ours || !next.IsValid() {
			break
		}
		addr = next
	}
	return NetworkOf(addr)
}

// NetworkOf is what limits per address count by: an IPv4 address itself, and of an
// IPv6 address its network of 64 bits, all of which one customer may have.
func NetworkOf(addr netip.Addr) netip.Addr {
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return addr
}

// AddrOf reads an address with or without a port. It returns the zero one for
// what is neither, such as that of a Unix socket.
func AddrOf(s string) netip.Addr {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	addr, _ := netip.ParseAddr(strings.Trim(s, "[]"))
	return addr.Unmap().WithZone("")
}
