package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Keys reads API keys. A [KeyStore] is one.
type Keys interface {
	FindKey(ctx context.Context, prefix string) (Key, error) // [store.ErrNotFound]
	UseKey(ctx context.Context, key store.ID) error
	Keys(ctx context.Context) ([]Key, error)
}

// Options say which credentials a [Guard] accepts. Without Admin, ReadOnly, Keys and
// NoAuth it accepts none.
type Options struct {
	// Admin and ReadOnly are secrets for the scopes Admin and Read. Default: none.
	// They must differ.
	Admin, ReadOnly Secret

	// Keys reads API keys. Default: there are none.
	Keys Keys

	// NoAuth gives every request the principal local, with the scope Admin. It is
	// for loopback addresses, see [CheckListen]: the Host of a request must be a
	// loopback address, the name localhost, or one of Hosts.
	NoAuth bool
	Hosts  []string

	// SessionKey signs the cookies of sessions, see [LoadSecret]. Default: a random
	// one, so that sessions end with the process.
	SessionKey Secret

	// Session is how long a session may be unused, and MaxSession how long it may
	// last. Default 24 h and 30 days.
	Session, MaxSession time.Duration

	// Path is the path of the cookie, such as "/cuelight/". Default "/".
	Path string

	// Proxies are the addresses of proxies whose X-Forwarded-For is trusted. Default:
	// none.
	Proxies []netip.Prefix

	// OnRefused is called with the address (of IPv6 the network) of a request with
	// invalid credentials, the key whose prefix they have, which is zero if there is none,
	// and the error of the request. It is not called for requests rejected by the limit of
	// failures. It must not block. Default: no call.
	OnRefused func(from netip.Addr, key Key, err error)
}

// Guard finds the principal of requests. Its methods may be called from several
// goroutines at once.
type Guard struct {
	o        Options
	dummy    [sha256.Size]byte // compared where no key has the prefix
	limits   *limits
	digests  digests
	sessions *sessions
}

// lookupTimeout limits the queries for one request.
const lookupTimeout = 10 * time.Second

// New returns a Guard with the options.
func New(o Options) (*Guard, error) {
	if !o.Admin.IsZero() && o.Admin == o.ReadOnly {
		return nil, errors.New("the admin secret and the read-only secret are the same")
	}
	if o.SessionKey.IsZero() {
		var key [sha256.Size]byte
		rand.Read(key[:]) // it never fails
		o.SessionKey = secretWith(key)
	}
	if o.OnRefused == nil {
		o.OnRefused = func(netip.Addr, Key, error) {}
	}
	o.Session, o.MaxSession = cmp.Or(o.Session, 24*time.Hour), cmp.Or(o.MaxSession, 30*24*time.Hour)
	o.Path = cmp.Or(o.Path, "/")
	g := &Guard{o: o, limits: newLimits(), digests: newDigests(), sessions: newSessions(o.SessionKey)}
	rand.Read(g.dummy[:])
	return g, nil
}

// bit is 1 for true and 0 for false.
func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Identify puts the principal into the request's context, for [PrincipalOf], [Check] and
// [Guard.Revalidate]. It rejects no request.
func (g *Guard) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := g.identify(r)
		if id.session != nil {
			g.renew(w, r, id.session)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, id)))
	})
}

// identify finds the principal of a request and its credential.
func (g *Guard) identify(r *http.Request) identity {
	ctx, cancel := context.WithTimeout(r.Context(), lookupTimeout)
	defer cancel()
	c, s, err := g.find(ctx, r)
	return identity{c, s, err}
}

// Authenticate returns the principal of a request. Its errors are [ErrNoCredentials],
// [ErrInvalidCredentials], [ErrHostName], a [*TooManyFailuresError], or an error of the database.
func (g *Guard) Authenticate(r *http.Request) (Principal, error) {
	id := g.identify(r)
	return id.principal, id.err
}

// Revalidate checks whether the credential of a request is still valid; ctx is the context that
// [Guard.Identify] has made. Handlers of long responses call it from time to time. It
// returns nil, [ErrNoCredentials], [ErrInvalidCredentials], or an error of the database. It
// does not count as a failure.
func (g *Guard) Revalidate(ctx context.Context) error {
	id, _ := ctx.Value(contextKey{}).(identity)
	switch {
	case id.principal.Scope == None:
		return ErrNoCredentials
	case g.o.NoAuth:
		return nil
	case id.session != nil && !g.sessions.isValid(*id.session, time.Now()):
		return ErrNoCredentials
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	c, err := g.credentialOf(ctx, id.subject)
	if err == nil && subtle.ConstantTimeCompare(c.digest[:], id.digest[:]) == 0 {
		err = ErrInvalidCredentials
	}
	return err
}

func (g *Guard) find(ctx context.Context, r *http.Request) (credential, *session, error) {
	if g.o.NoAuth {
		if !g.isLocalHost(r.Host) {
			return credential{}, nil, ErrHostName
		}
		return credential{principal: Principal{Name: "local", Scope: Admin}}, nil, nil
	}
	// Other schemes are for a proxy before this server. A wrong bearer token is an error
	// even if the request has a valid cookie.
	if scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		c, err := g.verify(ctx, r, strings.TrimSpace(text))
		return c, nil, err
	}
	return g.session(ctx, r)
}

// credential is a valid credential and its principal.
type credential struct {
	principal Principal
	subject   string // of its sessions: admin, read, or the prefix of a key
	digest    [sha256.Size]byte
	labels    []string // of a key
}

// verify checks a secret or key.
func (g *Guard) verify(ctx context.Context, r *http.Request, text string) (credential, error) {
	digest := sha256.Sum256([]byte(text))
	from := clientNetwork(r, g.o.Proxies)
	// A valid secret or key is accepted regardless of the failures of others, who could
	// otherwise lock its owner out. Secrets and keys cannot be guessed, so the limit only
	// protects the database from queries.
	isSecret := g.o.Admin.is(digest) | g.o.ReadOnly.is(digest)
	if wait := g.limits.wait(from); wait > 0 && isSecret == 0 && !g.isKey(ctx, digest) {
		return credential{}, &TooManyFailuresError{After: wait}
	}
	c, key, err := g.match(ctx, text, digest)
	if errors.Is(err, ErrInvalidCredentials) {
		g.limits.addFailure(from)
		g.o.OnRefused(from, key, err)
	}
	return c, err
}

// match does the same work whichever credential matches. Only the form of a key, which the
// client knows, makes a difference. It also returns the key with the prefix of the text.
func (g *Guard) match(ctx context.Context, text string, digest [sha256.Size]byte) (_ credential, key Key, err error) {
	var scope Scope
	stored, invalid := g.dummy, ErrInvalidCredentials
	if prefix, ok := KeyPrefix(text); ok && g.o.Keys != nil {
		if key, scope, err = g.findKey(ctx, prefix); err != nil {
			return credential{}, key, err
		}
		if key.Prefix == prefix {
			stored = key.Digest
		}
		invalid = errInvalidKey
	}
	isAdmin, isReader := g.o.Admin.is(digest), g.o.ReadOnly.is(digest)
	isKey := subtle.ConstantTimeCompare(stored[:], digest[:])
	switch {
	case isAdmin == 1:
		return g.secretOf(subjectAdmin), key, nil
	case isReader == 1:
		return g.secretOf(subjectRead), key, nil
	case isKey == 1 && scope > None:
		g.recordUse(ctx, key)
		return keyCredential(key, scope), key, nil
	case isKey == 1 && key.DisabledAt != nil && key.RevokedAt == nil:
		invalid = disabledKeyError(key)
	}
	return credential{}, key, invalid
}

// recordUse records the use of a key, once a minute. An error does not reject the request.
func (g *Guard) recordUse(ctx context.Context, key Key) {
	if key.UsedAt == nil || time.Since(*key.UsedAt) > time.Minute {
		_ = g.o.Keys.UseKey(ctx, key.ID)
	}
}

// findKey finds a valid key. Without one the scope is None.
func (g *Guard) findKey(ctx context.Context, prefix string) (Key, Scope, error) {
	key, err := g.o.Keys.FindKey(ctx, prefix)
	if errors.Is(err, store.ErrNotFound) {
		return Key{}, None, nil
	}
	if err != nil {
		return Key{}, None, err
	}
	return key, scopeOf(key), nil
}

// scopeOf is the scope of a valid key, and None for others.
func scopeOf(key Key) Scope {
	scope, err := ParseScope(key.Scope)
	if err != nil || key.RevokedAt != nil || key.DisabledAt != nil {
		return None
	}
	return scope
}

// The subjects of sessions of secrets. Those of keys have eight letters.
const (
	subjectAdmin = "admin"
	subjectRead  = "read"
)

func (g *Guard) secretOf(subject string) credential {
	if subject == subjectAdmin {
		return credential{Principal{Name: "admin", Scope: Admin}, subject, g.o.Admin.value(), nil}
	}
	return credential{Principal{Name: "read-only", Scope: Read}, subject, g.o.ReadOnly.value(), nil}
}

// keyNamePrefix starts the names of principals that are API keys, and no others.
const keyNamePrefix = "key "

func keyCredential(key Key, scope Scope) credential {
	return credential{Principal{Name: key.PrincipalName(), Scope: scope}, key.Prefix, key.Digest, key.Labels}
}

// isLocalHost reports whether a Host header is a name of this host that another site cannot
// point to it.
func (g *Guard) isLocalHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	return IsLoopbackName(name) || slices.Contains(g.o.Hosts, name)
}

// IsLoopbackName reports whether a name always means a loopback address.
func IsLoopbackName(name string) bool {
	if name == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// NoAuth reports whether requests need no credentials; see [Options].
func (g *Guard) NoAuth() bool { return g.o.NoAuth }
