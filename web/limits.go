package web

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/problem"
)

// A request waits for a free slot of its principal before it is refused. A stream waits longer: after a restart all
// clients open theirs at once, and a browser's EventSource never tries again after a response of 429.
const (
	requestWait = 5 * time.Second
	streamWait  = 30 * time.Second
)

// requestLimit bounds how many requests of each principal use the database at the same time. All principals share
// a few connections; without a limit, one principal could hold all of them.
type requestLimit struct {
	perPrincipal int

	mu          sync.Mutex
	byPrincipal map[string]*principalRequests
}

// principalRequests has the slots of one principal.
type principalRequests struct {
	slots chan struct{}
	users int // requests that hold a slot or wait for one
}

func newRequestLimit(perPrincipal int) *requestLimit {
	return &requestLimit{perPrincipal: perPrincipal, byPrincipal: make(map[string]*principalRequests)}
}

// acquire takes a slot of a principal and waits up to wait for it. The slot is taken until release is called,
// which may be called more than once.
func (l *requestLimit) acquire(ctx context.Context, principal string, wait time.Duration) (release func(), err error) {
	l.mu.Lock()
	p := l.byPrincipal[principal]
	if p == nil {
		p = &principalRequests{slots: make(chan struct{}, l.perPrincipal)}
		l.byPrincipal[principal] = p
	}
	p.users++
	l.mu.Unlock()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case p.slots <- struct{}{}:
		return sync.OnceFunc(func() { <-p.slots; l.release(principal, p) }), nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = l.timeoutError(principal, wait)
	}
	l.release(principal, p)
	return nil, err
}

func (l *requestLimit) release(principal string, p *principalRequests) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(l.byPrincipal, principal)
	}
}

func (l *requestLimit) timeoutError(principal string, wait time.Duration) error {
	return problem.New(problem.TooManyRequests, "%s has %d active requests, its limit, and this request waited %v for one of "+
		"them to end; send fewer at the same time", principal, l.perPrincipal, wait).After(defaultRetryAfter)
}

// limitRequests makes next wait for a slot of the principal, up to wait. The slot is free again when the first byte
// of the response is written: from then on the request waits for its client, or is a stream.
func (s *Server) limitRequests(wait time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, err := s.requestLimit.acquire(r.Context(), access.PrincipalOf(r.Context()).Name, wait)
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		defer release()
		if rec, ok := w.(*responseWriter); ok {
			rec.beforeFirstByte = release
		}
		next.ServeHTTP(w, r)
	})
}

// streamLimit bounds how many streams are open, in all and for each principal.
type streamLimit struct {
	total, perPrincipal int

	mu          sync.Mutex
	open        int
	byPrincipal map[string]int
}

func (l *streamLimit) acquire(principal string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open >= l.total:
		return problem.New(problem.TooManyStreams, "%d streams are open, the limit of this server", l.total).
			After(defaultRetryAfter)
	case l.byPrincipal[principal] >= l.perPrincipal:
		return problem.New(problem.TooManyStreams, "%s has %d open streams, its limit", principal, l.perPrincipal).
			After(defaultRetryAfter)
	}
	l.open++
	l.byPrincipal[principal]++
	return nil
}

func (l *streamLimit) release(principal string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.byPrincipal[principal]--; l.byPrincipal[principal] == 0 {
		delete(l.byPrincipal, principal)
	}
}

func (l *streamLimit) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// connectionLimit bounds how many connections are open, in all and from each address (of IPv6: each /64 network),
// so that one unknown client cannot take all of them.
type connectionLimit struct {
	total, perNetwork int
	exempt            []netip.Prefix // proxies, which connect for many clients

	mu        sync.Mutex
	open      int
	byNetwork map[netip.Addr]int
}

// track closes connections beyond the limit. It is the ConnState of an http.Server.
func (l *connectionLimit) track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if !l.acquire(c.RemoteAddr()) {
			_ = c.Close() // the http.Server then reports StateClosed, which releases it
		}
	case http.StateClosed:
		l.release(c.RemoteAddr())
	}
}

// acquire counts a connection and reports whether it is within the limits.
func (l *connectionLimit) acquire(from net.Addr) bool {
	addr := access.AddrOf(from.String())
	network := access.NetworkOf(addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.byNetwork[network]++
	return l.open <= l.total && (l.byNetwork[network] <= l.perNetwork || l.isExempt(addr))
}

func (l *connectionLimit) release(from net.Addr) {
	network := access.NetworkOf(access.AddrOf(from.String()))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.byNetwork[network]--; l.byNetwork[network] <= 0 {
		delete(l.byNetwork, network)
	}
}

// isExempt reports whether many clients may connect from an address: this host, where a proxy may run, or one of the
// configured proxies.
func (l *connectionLimit) isExempt(addr netip.Addr) bool {
	return !addr.IsValid() || addr.IsLoopback() ||
		slices.ContainsFunc(l.exempt, func(p netip.Prefix) bool { return p.Contains(addr) })
}
