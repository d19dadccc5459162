package access_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

func sessionKey(t testing.TB, letter string) access.Secret {
	t.Helper()
	s, err := access.NewSecret(strings.Repeat(letter, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// login returns the cookie of a new session.
func login(t testing.TB, g *access.Guard, text string) *http.Cookie {
	t.Helper()
	w := httptest.NewRecorder()
	if _, err := g.Login(w, request(""), text); err != nil {
		t.Fatal(err)
	}
	cookies := w.Result().Cookies()
	if len(cookies) != 1 {
		t.Fatalf("cookies are %v", cookies)
	}
	return cookies[0]
}

func with(c *http.Cookie) *http.Request {
	r := request("")
	r.AddCookie(c)
	return r
}

func TestLogin_SessionHasThePrincipalOfTheCredential(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	g := guard(t, o)
	for text, want := range map[string]access.Scope{
		adminText: access.Admin, readText + "\n": access.Read, k.add("submitsu", "submit"): access.Submit,
	} {
		c := login(t, g, text)
		if who, err := g.Authenticate(with(c)); err != nil || who.Scope != want {
			t.Errorf("session of %s is %+v, %v", want, who, err)
		}
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure || c.Path != "/" || c.MaxAge != 24*3600 {
			t.Errorf("cookie is %v", c)
		}
		if strings.Contains(c.Value, strings.TrimSpace(text)) {
			t.Error("the cookie has the secret")
		}
	}
	if _, err := g.Login(httptest.NewRecorder(), request(""), "wrong"); !errors.Is(err, access.ErrInvalidCredentials) {
		t.Errorf("wrong: %v", err)
	}
	secure := request("")
	secure.Header.Set("X-Forwarded-Proto", "https")
	w := httptest.NewRecorder()
	if _, err := g.Login(w, secure, adminText); err != nil || !w.Result().Cookies()[0].Secure {
		t.Errorf("behind TLS the cookie is not secure: %v", err)
	}
}

func TestSession_OutlivesTheProcessAndEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	o.SessionKey = sessionKey(t, "k")
	key := k.add("aaaaaaaa", "submit")
	first := guard(t, o)
	ofAdmin, ofKey := login(t, first, adminText), login(t, first, key)

	again := guard(t, o)
	for _, c := range []*http.Cookie{ofAdmin, ofKey} {
		if _, err := again.Authenticate(with(c)); err != nil {
			t.Errorf("after a restart: %v", err)
		}
	}
	now := time.Now()
	k.change("aaaaaaaa", func(k *access.Key) { k.RevokedAt = &now })
	if _, err := again.Authenticate(with(ofKey)); !errors.Is(err, access.ErrNoCredentials) {
		t.Errorf("with its key revoked: %v", err)
	}
	o.Admin = sessionKey(t, "n")
	if _, err := guard(t, o).Authenticate(with(ofAdmin)); !errors.Is(err, access.ErrNoCredentials) {
		t.Errorf("with another admin secret: %v", err)
	}
	o.Admin = access.Secret{}
	if _, err := guard(t, o).Authenticate(with(ofAdmin)); !errors.Is(err, access.ErrNoCredentials) {
		t.Errorf("without an admin secret: %v", err)
	}
	o, _ = options(t)
	for name, other := range map[string]access.Secret{"another": sessionKey(t, "z"), "none": {}} {
		o.SessionKey = other
		if _, err := guard(t, o).Authenticate(with(ofAdmin)); !errors.Is(err, access.ErrNoCredentials) {
			t.Errorf("%s session key: %v", name, err)
		}
	}
}

// Failures of other clients at the same address must not lock out a session after a restart.
func TestLogin_WorksWhileOthersFail(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	o.SessionKey = sessionKey(t, "k")
	key := k.add("aaaaaaaa", "read")
	c := login(t, guard(t, o), key)
	again := guard(t, o)
	for n := range 20 {
		_, _ = again.Authenticate(request(fmt.Sprint("guess", n))) // of another client at the same address
	}
	if _, err := again.Authenticate(with(c)); err != nil {
		t.Fatalf("the session: %v", err)
	}
	if _, err := again.Login(httptest.NewRecorder(), request(""), key); err != nil {
		t.Errorf("a new session: %v", err)
	}
}

func TestSession_RejectsAForgedCookie(t *testing.T) {
	t.Parallel()
	o, _ := options(t)
	g := guard(t, o)
	c := login(t, g, readText)
	for i := range len(c.Value) {
		forged := *c
		b := []byte(c.Value)
		b[i] ^= 1
		forged.Value = string(b)
		who, err := g.Authenticate(with(&forged))
		// Some bits of the last base64 letter are not used.
		if err == nil && i != len(b)-1 && b[min(i+1, len(b)-1)] != '.' {
			t.Fatalf("with letter %d changed it is %+v", i, who)
		}
	}
	for _, value := range []string{"", ".", "e30.", "e30", c.Value + "x", strings.Split(c.Value, ".")[0] + "."} {
		forged := *c
		forged.Value = value
		if who, err := g.Authenticate(with(&forged)); err == nil {
			t.Errorf("%q is %+v", value, who)
		}
	}
}

func TestLogout_EndsTheSession(t *testing.T) {
	t.Parallel()
	o, _ := options(t)
	g := guard(t, o)
	mine, others := login(t, g, adminText), login(t, g, adminText)
	w := httptest.NewRecorder()
	g.Logout(w, with(mine))
	if c := w.Result().Cookies(); len(c) != 1 || c[0].MaxAge >= 0 || c[0].Name != mine.Name {
		t.Errorf("cookies are %v", c)
	}
	if _, err := g.Authenticate(with(mine)); !errors.Is(err, access.ErrNoCredentials) {
		t.Errorf("after logging out: %v", err)
	}
	if _, err := g.Authenticate(with(others)); err != nil {
		t.Errorf("another session ended, too: %v", err)
	}
}

func TestSession_IsRenewedWhileInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, _ := options(t)
		g := guard(t, o)
		use := func(c *http.Cookie) (renewed *http.Cookie, err error) {
			w := httptest.NewRecorder()
			g.Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				err = access.Check(r.Context(), access.Admin)
			})).ServeHTTP(w, with(c))
			if cookies := w.Result().Cookies(); len(cookies) > 0 {
				return cookies[0], err
			}
			return nil, err
		}
		c := login(t, g, adminText)
		unused := c
		if again, err := use(c); again != nil || err != nil {
			t.Errorf("a fresh session is renewed: %v, %v", again, err)
		}
		began := time.Now()
		for time.Since(began) < 40*24*time.Hour {
			time.Sleep(13 * time.Hour)
			again, err := use(c)
			if err != nil {
				break
			}
			if again == nil {
				t.Fatalf("not renewed after %v", time.Since(began))
			}
			c = again
		}
		if lasted := time.Since(began); lasted < 29*24*time.Hour || lasted > 31*24*time.Hour {
			t.Errorf("it lasted %v", lasted)
		}
		if _, err := use(unused); !errors.Is(err, access.ErrNoCredentials) {
			t.Errorf("a session that was not used: %v", err)
		}
	})
}

func FuzzCookie(f *testing.F) {
	o, _ := options(f)
	o.SessionKey = sessionKey(f, "k")
	g := guard(f, o)
	c := login(f, g, adminText)
	f.Add(c.Value)
	f.Add("e30.e30")
	f.Add(".")
	f.Fuzz(func(t *testing.T, value string) {
		r := request("")
		r.Header.Set("Cookie", c.Name+"="+value)
		if who, err := g.Authenticate(r); err == nil && who.Scope != access.Admin {
			t.Errorf("%q is %+v", value, who)
		}
	})
}

// identified returns the context of an authenticated request.
func identified(t *testing.T, g *access.Guard, r *http.Request) (ctx context.Context) {
	t.Helper()
	g.Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx = r.Context()
	})).ServeHTTP(httptest.NewRecorder(), r)
	if err := access.Check(ctx, access.Read); err != nil {
		t.Fatal(err)
	}
	return ctx
}

func TestRevalidate_ReportsRevokedAccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, k := options(t)
		g := guard(t, o)
		key := k.add("aaaaaaaa", "read")
		c, left := login(t, g, readText), login(t, g, readText)
		ctxs := map[string]context.Context{
			"secret": identified(t, g, request(adminText)), "key": identified(t, g, request(key)),
			"session of a key": identified(t, g, with(login(t, g, key))),
			"session":          identified(t, g, with(c)), "session that is left": identified(t, g, with(left)),
		}
		still := func(want map[string]bool) {
			t.Helper()
			for name, ctx := range ctxs {
				err := g.Revalidate(ctx)
				if (err == nil) != want[name] ||
					err != nil && !errors.Is(err, access.ErrInvalidCredentials) && !errors.Is(err, access.ErrNoCredentials) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		still(map[string]bool{
			"secret": true, "key": true, "session of a key": true, "session": true, "session that is left": true,
		})
		now := time.Now()
		k.change("aaaaaaaa", func(k *access.Key) { k.RevokedAt = &now })
		g.Logout(httptest.NewRecorder(), with(left))
		for range 30 { // none of these counts as a failure
			still(map[string]bool{"secret": true, "session": true})
		}
		if _, err := g.Authenticate(request("wrong")); !errors.Is(err, access.ErrInvalidCredentials) {
			t.Errorf("another client at the address: %v", err)
		}
		time.Sleep(25 * time.Hour) // without a renewal
		still(map[string]bool{"secret": true})
		if err := g.Revalidate(context.Background()); !errors.Is(err, access.ErrNoCredentials) {
			t.Errorf("without a principal: %v", err)
		}
	})
}

// slow is a database that does not answer.
type slow struct{ *keyring }

// FindKey waits until ctx is done.
func (slow) FindKey(ctx context.Context, _ string) (access.Key, error) {
	<-ctx.Done()
	return access.Key{}, ctx.Err()
}

func TestIdentify_EndsAfterTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, k := options(t)
		o.Keys = slow{k}
		g := guard(t, o)
		for name, ask := range map[string]func() error{
			"key": func() error { _, err := g.Authenticate(request("cue_aaaaaaaa_" + strings.Repeat("A", 43))); return err },
			"login": func() error {
				_, err := g.Login(httptest.NewRecorder(), request(""), "cue_aaaaaaaa_"+strings.Repeat("A", 43))
				return err
			},
		} {
			began := time.Now()
			if err := ask(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 15*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
	})
}
