package web

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

// A request waits for a free slot of its principal before it is refused. A stream waits
// longer: all clients open theirs at once after a restart, and a browser's EventSource
// never tries again after an answer of 429.
const (
	requestWait = 5 * time.Second
	streamWait  = 30 * time.Second
)

// requestLimit bounds how many requests of each principal ask the database at the
// same time. All principals share a few connections; without a limit, one of them
// could hold all of these for as long as it likes.
type requestLimit struct {
	each int

	mu          sync.Mutex
	byPrincipal map[string]*principalRequests
}

// principalRequests are those of one principal that are under way or wait.
type principalRequests struct {
	slots chan struct{}
	n     int
}

func newRequestLimit(each int) *requestLimit {
	return &requestLimit{each: each, byPrincipal: make(map[string]*principalRequests)}
}

// enter takes one of the principal's slots, for which it waits up to wait. The slot is
// taken until release is called, which may be called more than once.
func (l *requestLimit) enter(ctx context.Context, who string, wait time.Duration) (release func(), err error) {
	l.mu.Lock()
	p := l.byPrincipal[who]
	if p == nil {
		p = &principalRequests{slots: make(chan struct{}, l.each)}
		l.byPrincipal[who] = p
	}
	p.n++
	l.mu.Unlock()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case p.slots <- struct{}{}:
		return sync.OnceFunc(func() { <-p.slots; l.leave(who, p) }), nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = l.refusal(who, wait)
	}
	l.leave(who, p)
	return nil, err
}

func (l *requestLimit) leave(who string, p *principalRequests) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.n--; p.n == 0 {
		delete(l.byPrincipal, who)
	}
}

func (l *requestLimit) refusal(who string, wait time.Duration) error {
	return &problem{kindRequests, fmt.Sprintf("%s may have %d requests under way, and more have waited for %v; send fewer at the same time", who, l.each, wait), retryAfter}
}

// limited has next answer when the principal of the request may have one more under
// way; the request waits for that up to wait. The answer counts until its first byte is
// written: afterwards it waits for the client, or is a stream, and asks for nothing that
// takes long.
func (s *Server) limited(wait time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, err := s.requests.enter(r.Context(), access.From(r.Context()).Name, wait)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		defer release()
		if rec, ok := w.(*response); ok {
			rec.begun = release
		}
		next.ServeHTTP(w, r)
	})
}

// connectionLimit bounds how many connections are open, in all and from each
// address (of IPv6: each network), so that one stranger cannot take all that there may be.
type connectionLimit struct {
	total, each int
	exempt      []netip.Prefix // proxies, from which everybody comes

	mu        sync.Mutex
	open      int
	byNetwork map[netip.Addr]int
}

// track closes connections that are too many. It is a ConnState of an http.Server.
func (l *connectionLimit) track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if !l.enter(c.RemoteAddr()) {
			_ = c.Close() // the http.Server then reports it as closed, which counts it out
		}
	case http.StateClosed:
		l.leave(c.RemoteAddr())
	}
}

// enter counts one more, and reports whether there is room for it.
func (l *connectionLimit) enter(from net.Addr) bool {
	addr := access.AddrOf(from.String())
	network := access.NetworkOf(addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.byNetwork[network]++
	return l.open <= l.total && (l.byNetwork[network] <= l.each || l.isExempt(addr))
}

func (l *connectionLimit) leave(from net.Addr) {
	network := access.NetworkOf(access.AddrOf(from.String()))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.byNetwork[network]--; l.byNetwork[network] <= 0 {
		delete(l.byNetwork, network)
	}
}

// isExempt reports whether many people may come from an address: it is this host,
// where a proxy may be, or one of the proxies that were named.
func (l *connectionLimit) isExempt(addr netip.Addr) bool {
	return !addr.IsValid() || addr.IsLoopback() ||
		slices.ContainsFunc(l.exempt, func(p netip.Prefix) bool { return p.Contains(addr) })
}
