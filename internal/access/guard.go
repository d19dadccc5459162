package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cuelight/cuelight/store"
)

// Keys finds API keys. A *store.Store does.
type Keys interface {
	FindKey(ctx context.Context, prefix string) (store.Key, error) // [store.ErrNotFound]
	UseKey(ctx context.Context, key store.ID) error
	Keys(ctx context.Context) ([]store.Key, error)
}

// Options say what a [Guard] lets in. Without Admin, ReadOnly, Keys and NoAuth
// that is nobody.
type Options struct {
	// Admin and ReadOnly are secrets for the scopes Admin and Read. Default:
	// nobody has one. They may not be the same.
	Admin, ReadOnly Secret

	// Keys finds API keys. Default: there are none.
	Keys Keys

	// NoAuth has everybody be the principal local, with the scope Admin. It is
	// for loopback addresses, see [CheckListen]: a request must have a loopback
	// address or the name localhost as its Host, or one of Hosts.
	NoAuth bool
	Hosts  []string

	// SessionKey makes the cookies of sessions, see [LoadSecret]. Default: one
	// that is drawn now, so that sessions end with the process.
	SessionKey Secret

	// Session is how long a session may go unused, and Longest how long it may
	// last. Default 24 h and 30 days.
	Session, Longest time.Duration

	// Path is the path of the cookie, such as "/cuelight/". Default "/".
	Path string

	// Proxies are the addresses of proxies whose X-Forwarded-For is to be believed.
	// Default none.
	Proxies []netip.Prefix

	// Refused is told where credentials come from that are not valid, of IPv6 the
	// network; not of those that were not looked at, because there had been too
	// many. It must not block. Default: nobody is.
	Refused func(from netip.Addr)
}

// Guard finds out who asks. It may be used by many goroutines at once.
type Guard struct {
	o        Options
	dummy    [sha256.Size]byte // the digest of a key that nobody has
	limits   *limits
	digests  digests
	sessions *sessions
}

// lookIn is how long it may take to find out who somebody is.
const lookIn = 10 * time.Second

// New returns a Guard.
func New(o Options) (*Guard, error) {
	if !o.Admin.IsZero() && o.Admin == o.ReadOnly {
		return nil, errors.New("the admin secret and the read-only secret are the same")
	}
	if o.SessionKey.IsZero() {
		var key [sha256.Size]byte
		rand.Read(key[:]) // it never fails
		o.SessionKey = secretWith(key)
	}
	if o.Refused == nil {
		o.Refused = func(netip.Addr) {}
	}
	o.Session, o.Longest = cmp.Or(o.Session, 24*time.Hour), cmp.Or(o.Longest, 30*24*time.Hour)
	o.Path = cmp.Or(o.Path, "/")
	g := &Guard{o: o, limits: newLimits(), digests: newDigests(), sessions: newSessions(o.SessionKey)}
	rand.Read(g.dummy[:])
	return g, nil
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Identify puts the principal into the request's context, for [From], [Check] and
// [Guard.Still]. It refuses nobody.
func (g *Guard) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := g.look(r)
		if id.session != nil {
			g.renew(w, r, id.session)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, id)))
	})
}

// look finds out who asks, and by what.
func (g *Guard) look(r *http.Request) identity {
	ctx, cancel := context.WithTimeout(r.Context(), lookIn)
	defer cancel()
	c, s, err := g.find(ctx, r)
	return identity{who: c.who, why: err, subject: c.subject, digest: c.digest, session: s}
}

// Who is the principal of a request. It returns [ErrUnknown], [ErrWrong],
// [ErrHost], a [*Limited], or an error of the database.
func (g *Guard) Who(r *http.Request) (Principal, error) {
	id := g.look(r)
	return id.who, id.why
}

// Still returns nil where the principal of a request, whose context [Guard.Identify]
// has made, would still be let in. Whoever answers for a long time should ask from
// time to time. It returns [ErrUnknown] or [ErrWrong] where not, or an error of the
// database. It is no attempt to get in, and counts as none.
func (g *Guard) Still(ctx context.Context) error {
	id, _ := ctx.Value(contextKey{}).(identity)
	switch {
	case id.who.Scope == None:
		return ErrUnknown
	case g.o.NoAuth:
		return nil
	case id.session != nil && !g.sessions.lasts(*id.session, time.Now()):
		return ErrUnknown
	}
	ctx, cancel := context.WithTimeout(ctx, lookIn)
	defer cancel()
	c, err := g.credentialOf(ctx, id.subject)
	if err == nil && subtle.ConstantTimeCompare(c.digest[:], id.digest[:]) == 0 {
		err = ErrWrong
	}
	return err
}

func (g *Guard) find(ctx context.Context, r *http.Request) (credential, *session, error) {
	if g.o.NoAuth {
		if !g.local(r.Host) {
			return credential{}, nil, ErrHost
		}
		return credential{who: Principal{Name: "local", Scope: Admin}}, nil, nil
	}
	// Other schemes are between the client and a proxy before us. Who shows a bearer
	// token means it: one that is wrong is not made good by a cookie.
	if scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		c, err := g.verify(ctx, r, strings.TrimSpace(text))
		return c, nil, err
	}
	return g.session(ctx, r)
}

// credential is what was shown, and is somebody's.
type credential struct {
	who     Principal
	subject string // for a session: admin, read, or the prefix of a key
	digest  [sha256.Size]byte
}

// verify finds whose a secret or key is.
func (g *Guard) verify(ctx context.Context, r *http.Request, text string) (credential, error) {
	digest := sha256.Sum256([]byte(text))
	from := remote(r, g.o.Proxies)
	// Who has a secret or a key is let in whatever others at his address, or in all,
	// get wrong: they could keep him out for as long as they like, and neither can be
	// guessed. What is limited is how often strangers have the database asked.
	secret := g.o.Admin.is(digest) | g.o.ReadOnly.is(digest)
	if wait := g.limits.wait(from); wait > 0 && secret == 0 && !g.isKey(ctx, digest) {
		return credential{}, &Limited{After: wait}
	}
	c, err := g.match(ctx, text, digest)
	if errors.Is(err, ErrWrong) {
		g.limits.wrong(from)
		g.o.Refused(from)
	}
	return c, err
}

// match does the same work whatever matches. That a text has the form of a key is
// known to who wrote it.
func (g *Guard) match(ctx context.Context, text string, digest [sha256.Size]byte) (credential, error) {
	var key store.Key
	var scope Scope
	stored := g.dummy
	if prefix, ok := store.KeyPrefix(text); ok && g.o.Keys != nil {
		var err error
		if key, scope, err = g.findKey(ctx, prefix); err != nil {
			return credential{}, err
		}
		if scope > None {
			stored = key.Digest
		}
	}
	isAdmin, isReader := g.o.Admin.is(digest), g.o.ReadOnly.is(digest)
	isKey := subtle.ConstantTimeCompare(stored[:], digest[:])
	switch {
	case isAdmin == 1:
		return g.secretOf(subjectAdmin), nil
	case isReader == 1:
		return g.secretOf(subjectRead), nil
	case isKey == 1 && scope > None:
		g.noteUse(ctx, key)
		return keyCredential(key, scope), nil
	}
	return credential{}, ErrWrong
}

// noteUse notes that a key was used, once a minute. That is worth less than that it is
// let in.
func (g *Guard) noteUse(ctx context.Context, key store.Key) {
	if key.UsedAt == nil || time.Since(*key.UsedAt) > time.Minute {
		_ = g.o.Keys.UseKey(ctx, key.ID)
	}
}

// findKey finds a key that is valid; the scope is None where there is none.
func (g *Guard) findKey(ctx context.Context, prefix string) (store.Key, Scope, error) {
	key, err := g.o.Keys.FindKey(ctx, prefix)
	if errors.Is(err, store.ErrNotFound) {
		return store.Key{}, None, nil
	}
	if err != nil {
		return store.Key{}, None, err
	}
	return key, scopeOf(key), nil
}

// scopeOf is None where a key is not valid.
func scopeOf(key store.Key) Scope {
	scope, err := ParseScope(key.Scope)
	if err != nil || key.RevokedAt != nil {
		return None
	}
	return scope
}

// The subjects of sessions that are not those of keys, which have eight letters.
const (
	subjectAdmin = "admin"
	subjectRead  = "read"
)

func (g *Guard) secretOf(subject string) credential {
	if subject == subjectAdmin {
		return credential{Principal{Name: "admin", Scope: Admin}, subject, g.o.Admin.value()}
	}
	return credential{Principal{Name: "read-only", Scope: Read}, subject, g.o.ReadOnly.value()}
}

// keyName is what the name of a key's principal begins with, and no other's.
const keyName = "key "

func keyCredential(key store.Key, scope Scope) credential {
	// The name of a principal is shown in many places, and not every key was made by
	// a version that is strict about names.
	name := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, key.Name)
	who := Principal{Name: fmt.Sprintf("%s%s (%s)", keyName, key.Prefix, name), Scope: scope}
	return credential{who, key.Prefix, key.Digest}
}

// local reports whether a Host header names this host and cannot be a name that
// somebody else has lead here.
func (g *Guard) local(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	return isLoopbackName(name) || slices.Contains(g.o.Hosts, name)
}

func isLoopbackName(name string) bool {
	if name == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// NoAuth reports whether everybody is let in; see [Options].
func (g *Guard) NoAuth() bool { return g.o.NoAuth }
