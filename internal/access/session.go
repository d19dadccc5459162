package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// session is what a cookie says.
type session struct {
	ID      string `json:"i"`
	Subject string `json:"s"` // admin, read, or the prefix of a key
	Bound   []byte `json:"c"` // to the credential that it was given for
	Began   int64  `json:"b"` // in seconds since 1970
	Ends    int64  `json:"e"`
}

// sessions make and read cookies, and remember which sessions were logged out.
type sessions struct {
	key    [sha256.Size]byte
	cookie string

	mu  sync.Mutex
	out map[string]int64 // when those that were logged out would have ended
}

// newSessions names the cookie after the key: a browser sends cookies to all
// ports of a host, where another daemon may have given its own.
func newSessions(key Secret) *sessions {
	s := &sessions{key: key.value(), out: make(map[string]int64)}
	s.cookie = "cuelight_" + hex.EncodeToString(s.mac("cookie", nil)[:4])
	return s
}

// mac is a MAC, for one purpose.
func (s *sessions) mac(purpose string, text []byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	h.Write([]byte("cuelight " + purpose + "\x00"))
	h.Write(text)
	return h.Sum(nil)
}

func (s *sessions) bind(digest [sha256.Size]byte) []byte { return s.mac("credential", digest[:])[:16] }

func (s *sessions) seal(in session) string {
	text, err := json.Marshal(in)
	if err != nil {
		panic(err) // it has nothing that JSON has not
	}
	return base64.RawURLEncoding.EncodeToString(text) + "." + base64.RawURLEncoding.EncodeToString(s.mac("session", text))
}

// open reads a cookie, if it is one of ours and neither over nor logged out.
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
	return out, s.lasts(out, now)
}

// lasts reports whether a session is neither over nor logged out.
func (s *sessions) lasts(in session, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, loggedOut := s.out[in.ID]
	return now.Unix() < in.Ends && !loggedOut
}

// forget logs a session out, and all renewals of it.
func (s *sessions) forget(id string, until time.Time, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, ends := range s.out {
		if ends <= now.Unix() {
			delete(s.out, other)
		}
	}
	s.out[id] = until.Unix()
}

// session finds the session of a request, and whose it is now.
func (g *Guard) session(ctx context.Context, r *http.Request) (credential, *session, error) {
	cookie, err := r.Cookie(g.sessions.cookie)
	if err != nil {
		return credential{}, nil, ErrUnknown
	}
	s, ok := g.sessions.open(cookie.Value, time.Now())
	if !ok {
		return credential{}, nil, ErrUnknown
	}
	c, err := g.credentialOf(ctx, s.Subject)
	if err != nil {
		return credential{}, nil, err
	}
	if !hmac.Equal(s.Bound, g.sessions.bind(c.digest)) {
		return credential{}, nil, ErrUnknown
	}
	return c, &s, nil
}

// credentialOf is the credential that a subject's sessions are bound to. Who has one
// by a key uses the key.
func (g *Guard) credentialOf(ctx context.Context, subject string) (credential, error) {
	switch {
	case subject == subjectAdmin && !g.o.Admin.IsZero(), subject == subjectRead && !g.o.ReadOnly.IsZero():
		return g.secretOf(subject), nil
	case subject == subjectAdmin, subject == subjectRead, g.o.Keys == nil:
		return credential{}, ErrUnknown
	}
	key, scope, err := g.findKey(ctx, subject)
	if err != nil {
		return credential{}, err
	}
	if scope == None {
		return credential{}, ErrUnknown
	}
	g.noteUse(ctx, key)
	return keyCredential(key, scope), nil
}

// Login begins a session for whoever has a secret or an API key, by a cookie. It
// returns [ErrWrong], a [*Limited], or an error of the database. Where nobody has
// to say who he is, there are no sessions, and everything is right.
func (g *Guard) Login(w http.ResponseWriter, r *http.Request, text string) (Principal, error) {
	if g.o.NoAuth {
		return g.Who(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookIn)
	defer cancel()
	c, err := g.verify(ctx, r, strings.TrimSpace(text))
	if err != nil {
		return Principal{}, err
	}
	now := time.Now()
	s := session{ID: rand.Text(), Subject: c.subject, Bound: g.sessions.bind(c.digest), Began: now.Unix()}
	g.give(w, r, s, now)
	return c.who, nil
}

// Logout ends the session of a request, if it has one.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) {
	cookie, err := r.Cookie(g.sessions.cookie)
	if err != nil {
		return
	}
	now := time.Now()
	if s, ok := g.sessions.open(cookie.Value, now); ok {
		g.sessions.forget(s.ID, now.Add(g.o.Session), now)
	}
	g.set(w, r, "", -1)
}

// renew has a session that is used last longer.
func (g *Guard) renew(w http.ResponseWriter, r *http.Request, s *session) {
	now := time.Now()
	if time.Unix(s.Ends, 0).Sub(now) < g.o.Session/2 {
		g.give(w, r, *s, now)
	}
}

// give sends the cookie of a session that begins or goes on now.
func (g *Guard) give(w http.ResponseWriter, r *http.Request, s session, now time.Time) {
	last := time.Unix(s.Began, 0).Add(g.o.Longest)
	s.Ends = min(now.Add(g.o.Session).Unix(), last.Unix())
	g.set(w, r, g.sessions.seal(s), int(s.Ends-now.Unix()))
}

func (g *Guard) set(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: g.sessions.cookie, Value: value, Path: g.o.Path, MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
		// Believed of everybody: who sends the header without a proxy makes his own
		// cookie safer.
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	})
}
