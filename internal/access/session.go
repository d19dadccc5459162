package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// session is the content of a cookie.
type session struct {
	ID      string `json:"i"`
	Subject string `json:"s"` // admin, read, or the prefix of a key
	Bound   []byte `json:"c"` // MAC of the credential that created it
	Start   int64  `json:"b"` // Unix time
	End     int64  `json:"e"`
}

// sessions sign and verify cookies, and remember logouts.
type sessions struct {
	key    [sha256.Size]byte
	cookie string

	mu        sync.Mutex
	loggedOut map[string]int64 // the ends of these sessions, by ID
}

// newSessions derives the cookie's name from the key: a browser sends cookies to all ports
// of a host, so another daemon on it needs another name.
func newSessions(key Secret) *sessions {
	s := &sessions{key: key.value(), loggedOut: make(map[string]int64)}
	s.cookie = "cuelight_" + hex.EncodeToString(s.mac("cookie", nil)[:4])
	return s
}

// mac is the MAC of a text for one purpose.
func (s *sessions) mac(purpose string, text []byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	h.Write([]byte("cuelight " + purpose + "\x00"))
	h.Write(text)
	return h.Sum(nil)
}

// bind is the MAC that binds a session to its credential.
func (s *sessions) bind(digest [sha256.Size]byte) []byte { return s.mac("credential", digest[:])[:16] }

// seal makes the value of a cookie.
func (s *sessions) seal(in session) string {
	text, err := json.Marshal(in)
	if err != nil {
		panic(err) // all fields have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(text) + "." + base64.RawURLEncoding.EncodeToString(s.mac("session", text))
}

// open reads the value of a cookie and reports whether it is a valid session.
func (s *sessions) open(value string, now time.Time) (session, bool) {
	payload, sum, _ := strings.Cut(value, ".")
	text, err1 := base64.RawURLEncoding.DecodeString(payload)
	mac, err2 := base64.RawURLEncoding.DecodeString(sum)
	if err1 != nil || err2 != nil || !hmac.Equal(mac, s.mac("session", text)) {
		return session{}, false
	}
	var out session
	if json.Unmarshal(text, &out) != nil {
		return session{}, false
	}
	return out, s.isValid(out, now)
}

// isValid reports whether a session has neither ended nor been logged out.
func (s *sessions) isValid(in session, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, isLoggedOut := s.loggedOut[in.ID]
	return now.Unix() < in.End && !isLoggedOut
}

// logOut ends a session and all its renewals.
func (s *sessions) logOut(id string, until time.Time, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, ends := range s.loggedOut {
		if ends <= now.Unix() {
			delete(s.loggedOut, other)
		}
	}
	s.loggedOut[id] = until.Unix()
}

// session finds the session of a request and its credential.
func (g *Guard) session(ctx context.Context, r *http.Request) (credential, *session, error) {
	cookie, err := r.Cookie(g.sessions.cookie)
	if err != nil {
		return credential{}, nil, ErrNoCredentials
	}
	s, ok := g.sessions.open(cookie.Value, time.Now())
	if !ok {
		return credential{}, nil, ErrNoCredentials
	}
	c, err := g.credentialOf(ctx, s.Subject)
	if err != nil {
		return credential{}, nil, err
	}
	if !hmac.Equal(s.Bound, g.sessions.bind(c.digest)) {
		return credential{}, nil, ErrNoCredentials
	}
	return c, &s, nil
}

// credentialOf is the credential of a subject's sessions. Using the session of a key counts
// as a use of the key.
func (g *Guard) credentialOf(ctx context.Context, subject string) (credential, error) {
	switch {
	case subject == subjectAdmin && !g.o.Admin.IsZero(), subject == subjectRead && !g.o.ReadOnly.IsZero():
		return g.secretOf(subject), nil
	case subject == subjectAdmin, subject == subjectRead, g.o.Keys == nil:
		return credential{}, ErrNoCredentials
	}
	key, scope, err := g.findKey(ctx, subject)
	if err != nil {
		return credential{}, err
	}
	if scope == None {
		return credential{}, ErrNoCredentials
	}
	g.recordUse(ctx, key)
	return keyCredential(key, scope), nil
}

// Login starts a session for a secret or an API key and sets its cookie. Its errors are
// [ErrInvalidCredentials], [ErrForbidden] for a key that may only work, a [*TooManyFailuresError], or an error of the database. Without
// authentication there are no sessions, and Login accepts everything.
func (g *Guard) Login(w http.ResponseWriter, r *http.Request, text string) (Principal, error) {
	if g.o.NoAuth {
		return g.Authenticate(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookupTimeout)
	defer cancel()
	c, err := g.verify(ctx, r, strings.TrimSpace(text))
	if err == nil && !c.principal.Scope.Allows(Read) {
		err = fmt.Errorf("%w: %s is for a worker; log in with a key of another scope", ErrForbidden, c.principal.Name)
	}
	if err != nil {
		return Principal{}, err
	}
	now := time.Now()
	s := session{ID: rand.Text(), Subject: c.subject, Bound: g.sessions.bind(c.digest), Start: now.Unix()}
	g.setSession(w, r, s, now)
	return c.principal, nil
}

// Logout ends the session of a request, if it has one.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) {
	cookie, err := r.Cookie(g.sessions.cookie)
	if err != nil {
		return
	}
	now := time.Now()
	if s, ok := g.sessions.open(cookie.Value, now); ok {
		g.sessions.logOut(s.ID, now.Add(g.o.Session), now)
	}
	g.setCookie(w, r, "", -1)
}

// renew extends a session in the second half of its time.
func (g *Guard) renew(w http.ResponseWriter, r *http.Request, s *session) {
	now := time.Now()
	if time.Unix(s.End, 0).Sub(now) < g.o.Session/2 {
		g.setSession(w, r, *s, now)
	}
}

// setSession sets the cookie of a new or renewed session.
func (g *Guard) setSession(w http.ResponseWriter, r *http.Request, s session, now time.Time) {
	latest := time.Unix(s.Start, 0).Add(g.o.MaxSession)
	s.End = min(now.Add(g.o.Session).Unix(), latest.Unix())
	g.setCookie(w, r, g.sessions.seal(s), int(s.End-now.Unix()))
}

// setCookie sets the session cookie; a negative age deletes it.
func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: g.sessions.cookie, Value: value, Path: g.o.Path, MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
		// The header needs no trusted proxy: a client that sends it only makes its own
		// cookie safer.
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	})
}
