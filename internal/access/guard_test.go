package access_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
)

var (
	adminText = strings.Repeat("a", 40)
	readText  = strings.Repeat("r", 40)
)

// keyring is a table of keys.
type keyring struct {
	mu   sync.Mutex
	keys map[string]access.Key
	used int
	read int // how often they were listed
	err  error
}

// Keys returns all keys.
func (k *keyring) Keys(context.Context) (all []access.Key, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read++
	return slices.Collect(maps.Values(k.keys)), k.err
}

// FindKey returns the key with a prefix.
func (k *keyring) FindKey(_ context.Context, prefix string) (access.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, ok := k.keys[prefix]
	if k.err != nil {
		return access.Key{}, k.err
	}
	if !ok {
		return access.Key{}, store.ErrNotFound
	}
	return key, nil
}

// UseKey counts the uses of keys.
func (k *keyring) UseKey(context.Context, store.ID) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used++
	return nil
}

func (k *keyring) add(prefix, scope string) string {
	text := "cue_" + prefix + "_" + strings.Repeat("A", 43)
	k.keys[prefix] = access.Key{
		ID: store.ID{1}, Name: "n " + scope, Scope: scope, Prefix: prefix, Digest: sha256.Sum256([]byte(text)),
	}
	return text
}

func (k *keyring) change(prefix string, change func(*access.Key)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := k.keys[prefix]
	change(&key)
	k.keys[prefix] = key
}

func options(t testing.TB) (access.Options, *keyring) {
	t.Helper()
	admin, err1 := access.NewSecret(adminText)
	reader, err2 := access.NewSecret(readText)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	k := &keyring{keys: make(map[string]access.Key)}
	return access.Options{Admin: admin, ReadOnly: reader, Keys: k}, k
}

func guard(t testing.TB, o access.Options) *access.Guard {
	t.Helper()
	g, err := access.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func request(bearer string) *http.Request {
	r := httptest.NewRequest("GET", "http://example.com/", nil)
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	return r
}

func TestIdentify_FindsThePrincipalOfCredentials(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	g := guard(t, o)
	reading, submitting, administrating := k.add("readread", "read"), k.add("submitsu", "submit"),
		k.add("adminadm", "admin")
	revoked := k.add("revokedr", "admin")
	now := time.Now()
	k.change("revokedr", func(k *access.Key) { k.RevokedAt = &now })
	disabled := k.add("disabled", "admin")
	k.change("disabled", func(k *access.Key) { k.DisabledAt = &now })
	working := k.add("workwork", "work")
	unknownScope := k.add("oddoddod", "root")
	for _, c := range []struct {
		bearer string
		want   access.Principal
		err    error
	}{
		{adminText, access.Principal{Name: "admin", Scope: access.Admin}, nil},
		{readText, access.Principal{Name: "read-only", Scope: access.Read}, nil},
		{reading, access.Principal{Name: "key readread (n read)", Scope: access.Read}, nil},
		{submitting, access.Principal{Name: "key submitsu (n submit)", Scope: access.Submit}, nil},
		{administrating, access.Principal{Name: "key adminadm (n admin)", Scope: access.Admin}, nil},
		{working, access.Principal{Name: "key workwork (n work)", Scope: access.Work}, nil},
		{revoked, access.Principal{}, access.ErrInvalidCredentials},
		{disabled, access.Principal{}, access.ErrInvalidCredentials},
		{unknownScope, access.Principal{}, access.ErrInvalidCredentials},
		{strings.Replace(reading, "AAA", "AAB", 1), access.Principal{}, access.ErrInvalidCredentials},
		{strings.Replace(reading, "readread", "aaaaaaaa", 1), access.Principal{}, access.ErrInvalidCredentials},
		{adminText + "a", access.Principal{}, access.ErrInvalidCredentials},
		{"", access.Principal{}, access.ErrNoCredentials},
	} {
		who, err := g.Authenticate(request(c.bearer))
		if who != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q is %+v, %v; want %+v, %v", c.bearer, who, err, c.want, c.err)
		}
	}
	basic := request("")
	basic.SetBasicAuth("admin", adminText)
	if _, err := g.Authenticate(basic); !errors.Is(err, access.ErrNoCredentials) {
		t.Errorf("basic authentication: %v", err)
	}
	// The credentials of a proxy do not replace a session; a bearer token does.
	c := login(t, g, readText)
	basic.AddCookie(c)
	if who, err := g.Authenticate(basic); err != nil || who.Name != "read-only" {
		t.Errorf("a session behind a proxy with basic authentication: %+v, %v", who, err)
	}
	wrong := request("wrong")
	wrong.AddCookie(c)
	if _, err := g.Authenticate(wrong); !errors.Is(err, access.ErrInvalidCredentials) {
		t.Errorf("a wrong token with a session: %v", err)
	}
}

func TestAuthenticate_NamesADisabledKeyToItsHolderOnly(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	type refusal struct {
		prefix string
		err    error
	}
	var refusals []refusal
	o.OnRefused = func(_ netip.Addr, key access.Key, err error) { refusals = append(refusals, refusal{key.Prefix, err}) }
	g := guard(t, o)
	now := time.Now()
	disabled, revoked, valid := k.add("disabled", "work"), k.add("revokedr", "work"), k.add("validkey", "work")
	k.change("disabled", func(k *access.Key) { k.DisabledAt = &now })
	k.change("revokedr", func(k *access.Key) { k.DisabledAt, k.RevokedAt = &now, &now })
	const unknown = "credentials are not valid: the key is unknown or revoked"
	for _, c := range []struct{ bearer, prefix, want string }{
		{disabled, "disabled", "credentials are not valid: the key disabled (n work) is disabled; " +
			"on the server's host, cuelight keys enable cue_disabled accepts it again"},
		{strings.Replace(disabled, "AAA", "AAB", 1), "disabled", unknown},
		{strings.Replace(valid, "AAA", "AAB", 1), "validkey", unknown},
		{revoked, "revokedr", unknown},
		{strings.Replace(valid, "validkey", "aaaaaaaa", 1), "", unknown},
		{"wrong", "", "credentials are not valid"},
	} {
		refusals = nil
		_, err := g.Authenticate(request(c.bearer))
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.bearer, err, c.want)
		}
		if len(refusals) != 1 || refusals[0] != (refusal{c.prefix, err}) {
			t.Errorf("%q: the refusals are %v", c.bearer, refusals)
		}
	}
}

func TestScopes_AllowWhatTheyInclude(t *testing.T) {
	t.Parallel()
	const none, work, read, submit, admin = access.None, access.Work, access.Read, access.Submit, access.Admin
	allowed := map[access.Scope][]access.Scope{
		none: {none}, work: {none, work}, read: {none, read}, submit: {none, read, submit},
		admin: {none, work, read, submit, admin},
	}
	for scope, want := range allowed {
		for need := range allowed {
			if scope.Allows(need) != slices.Contains(want, need) {
				t.Errorf("%s allows %s: %t", scope, need, scope.Allows(need))
			}
		}
		if parsed, err := access.ParseScope(scope.String()); (err == nil) != (scope != none) || parsed != scope {
			t.Errorf("%s is parsed as %s, %v", scope, parsed, err)
		}
	}
}

func TestLogin_RefusesAKeyOfTheScopeWork(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	w := httptest.NewRecorder()
	_, err := guard(t, o).Login(w, request(""), k.add("workwork", "work"))
	if !errors.Is(err, access.ErrForbidden) || len(w.Result().Cookies()) > 0 {
		t.Errorf("%v, cookies %v", err, w.Result().Cookies())
	}
}

func TestPrincipal_NameIsPrintable(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	text := k.add("aaaaaaaa", "read")
	k.change("aaaaaaaa", func(k *access.Key) { k.Name = "a\x1b[2J\u202eb" })
	who, err := guard(t, o).Authenticate(request(text))
	if want := "key aaaaaaaa (a\ufffd[2J\ufffdb)"; err != nil || who.Name != want {
		t.Errorf("it is %q, %v; want %q", who.Name, err, want)
	}
}

func TestIdentify_RejectsEmptyCredentials(t *testing.T) {
	t.Parallel()
	g := guard(t, access.Options{})
	for _, bearer := range []string{"", "x", strings.Repeat("\x00", 32), "cue_aaaaaaaa_" + strings.Repeat("A", 43)} {
		if who, err := g.Authenticate(request(bearer)); err == nil {
			t.Errorf("%q is %+v", bearer, who)
		}
	}
	o, _ := options(t)
	o.ReadOnly = o.Admin
	if _, err := access.New(o); err == nil {
		t.Error("one secret for two scopes")
	}
}

func TestCheck_ScopesIncludeLowerOnes(t *testing.T) {
	t.Parallel()
	scopes := []access.Scope{access.None, access.Read, access.Submit, access.Admin}
	for i, has := range scopes {
		for j, need := range scopes[1:] {
			err := access.Check(access.With(t.Context(), access.Principal{Name: "x", Scope: has}), need)
			if (err == nil) != (i > j) {
				t.Errorf("%s, needed %s: %v", has, need, err)
			}
			if i > 0 && err != nil && !errors.Is(err, access.ErrForbidden) {
				t.Errorf("%s, needed %s: %v", has, need, err)
			}
		}
	}
	if err := access.Check(t.Context(), access.Read); !errors.Is(err, access.ErrNoCredentials) {
		t.Errorf("without a principal: %v", err)
	}
}

func TestIdentify_KeepsTheReasonForCheck(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	k.err = errors.New("the database is away")
	g := guard(t, o)
	for bearer, want := range map[string]error{
		"":    access.ErrNoCredentials,
		"bad": access.ErrInvalidCredentials,
		"cue_aaaaaaaa_" + strings.Repeat("A", 43): k.err,
		adminText: nil,
	} {
		var got error
		g.Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = access.Check(r.Context(), access.Read)
		})).ServeHTTP(httptest.NewRecorder(), request(bearer))
		if !errors.Is(got, want) {
			t.Errorf("%q: %v, want %v", bearer, got, want)
		}
	}
}

func TestIdentify_RecordsTheUseOfAKeyOnceAMinute(t *testing.T) {
	t.Parallel()
	o, k := options(t)
	g := guard(t, o)
	text := k.add("aaaaaaaa", "read")
	for i, c := range []struct {
		ago  time.Duration
		want int
	}{{2 * time.Minute, 1}, {time.Second, 1}, {time.Hour, 2}} {
		at := time.Now().Add(-c.ago)
		k.change("aaaaaaaa", func(k *access.Key) { k.UsedAt = &at })
		if _, err := g.Authenticate(request(text)); err != nil || k.used != c.want {
			t.Errorf("%d: recorded %d times, want %d, %v", i, k.used, c.want, err)
		}
	}
	if _, err := g.Authenticate(request(strings.Replace(text, "AAA", "AAB", 1))); err == nil || k.used != 2 {
		t.Errorf("the use of a wrong key was recorded, %v", err)
	}
	c := login(t, g, text)
	used := k.used
	k.change("aaaaaaaa", func(k *access.Key) { k.UsedAt = nil })
	if _, err := g.Authenticate(with(c)); err != nil || k.used != used+1 {
		t.Errorf("the use by a session is not recorded: %v", err)
	}
}

func TestIdentify_LimitsFailuresByAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, k := options(t)
		g := guard(t, o)
		key := k.add("aaaaaaaa", "read")
		var limited *access.TooManyFailuresError
		fails := 0
		for ; fails < 1000; fails++ {
			_, err := g.Authenticate(request(fmt.Sprint("guess", fails)))
			if errors.As(err, &limited) {
				break
			}
		}
		if fails != 10 || limited.After <= 0 || limited.After > 6*time.Second {
			t.Errorf("refused after %d failures, for %v", fails, limited.After)
		}
		for _, text := range []string{adminText, readText, key} {
			if _, err := g.Authenticate(request(text)); err != nil {
				t.Errorf("a valid secret or key is refused: %v", err)
			}
		}
		// A new key is known soon, and failures do not cause more queries.
		k.mu.Lock()
		made := k.add("bbbbbbbb", "read")
		k.mu.Unlock()
		for n := range 1000 {
			_, _ = g.Authenticate(request(fmt.Sprint("another guess", n)))
		}
		time.Sleep(10 * time.Second)
		for range 2 { // to be limited again
			_, _ = g.Authenticate(request("guess"))
		}
		if _, err := g.Authenticate(request(made)); err != nil {
			t.Errorf("a new key is refused: %v", err)
		}
		if k.read > 2 {
			t.Errorf("the keys were read %d times", k.read)
		}
		now := time.Now()
		k.change("aaaaaaaa", func(k *access.Key) { k.RevokedAt = &now })
		if who, err := g.Authenticate(request(key)); err == nil {
			t.Errorf("a revoked key is %+v", who)
		}
		if _, err := g.Authenticate(request("")); !errors.Is(err, access.ErrNoCredentials) {
			t.Errorf("without credentials: %v", err)
		}
		if _, err := g.Authenticate(request("guess")); !errors.As(err, &limited) {
			t.Errorf("a guess after valid requests: %v", err)
		}
		time.Sleep(limited.After)
		if _, err := g.Authenticate(request("guess")); !errors.Is(err, access.ErrInvalidCredentials) {
			t.Errorf("a guess after the wait: %v", err)
		}
	})
}

func TestIdentify_LimitsFailuresOfAllAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, _ := options(t)
		g := guard(t, o)
		n := 0
		for ; n < 10000; n++ {
			r := request(fmt.Sprint("guess", n))
			r.RemoteAddr = fmt.Sprintf("[2001:db8:%x::1]:99", n)
			var limited *access.TooManyFailuresError
			if _, err := g.Authenticate(r); errors.As(err, &limited) {
				break
			}
		}
		if n != 100 {
			t.Errorf("refused after %d", n)
		}
	})
}

func TestClientNetwork_TrustsOnlyConfiguredProxies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			from      func(n int) (addr, forwarded string)
			separated bool
		}{
			"one address": {func(int) (string, string) { return "192.0.2.1:1", "" }, false},
			"one network": {
				func(n int) (string, string) { return fmt.Sprintf("[2001:db8::%x]:1", n), "" }, false,
			},
			"a client that says so": {
				func(n int) (string, string) { return "192.0.2.1:1", fmt.Sprintf("198.51.100.%d", n) }, false,
			},
			"a proxy of ours": {
				func(n int) (string, string) { return "10.0.0.1:1", fmt.Sprintf("198.51.100.%d", n) }, true,
			},
			"two proxies": {
				func(n int) (string, string) { return "10.0.0.1:1", fmt.Sprintf("198.51.100.%d, 10.0.0.2", n) }, true,
			},
			"a client before our proxy": {
				func(n int) (string, string) { return "10.0.0.1:1", fmt.Sprintf("198.51.100.%d, 192.0.2.1", n) }, false,
			},
			"nonsense before our proxy": {
				func(n int) (string, string) { return "10.0.0.1:1", fmt.Sprint("nonsense", n) }, false,
			},
			"a proxy that says nothing":  {func(int) (string, string) { return "10.0.0.1:1", "" }, false},
			"many addresses of one kind": {func(n int) (string, string) { return fmt.Sprintf("198.51.100.%d:1", n), "" }, true},
		} {
			o, _ := options(t)
			o.Proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
			g := guard(t, o)
			refused := false
			for n := range 50 {
				r := request(fmt.Sprint("guess", n))
				var forwarded string
				if r.RemoteAddr, forwarded = c.from(n); forwarded != "" {
					r.Header.Set("X-Forwarded-For", forwarded)
				}
				var limited *access.TooManyFailuresError
				_, err := g.Authenticate(r)
				refused = refused || errors.As(err, &limited)
			}
			if refused == c.separated {
				t.Errorf("%s: refused %t", name, refused)
			}
		}
	})
}

func TestNoAuth_AcceptsOnlyNamesOfThisHost(t *testing.T) {
	t.Parallel()
	g := guard(t, access.Options{NoAuth: true, Hosts: []string{"studio.lan"}})
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LOCALHOST:1": true, "127.0.0.1:8080": true, "127.1.2.3": true,
		"[::1]:8080": true, "[::1]": true,
		"studio.lan:80": true, "evil.example": false, "evil.example:8080": false, "localhost.evil.example": false,
		"192.0.2.1": false, "": false,
		"127.0.0.1.evil.example": false, "[::ffff:127.0.0.1]:1": true, "0.0.0.0": false,
	} {
		r := request("")
		r.Host = host
		who, err := g.Authenticate(r)
		if ok && (err != nil || who.Scope != access.Admin) || !ok && !errors.Is(err, access.ErrHostName) {
			t.Errorf("%q: %+v, %v", host, who, err)
		}
	}
}

func TestCheckListen_AllowsSafeAddressesOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr                  string
		tls, insecure, noAuth bool
		want                  error
	}{
		{"127.0.0.1:8080", false, false, false, nil},
		{"localhost:8080", false, false, true, nil},
		{"[::1]:8080", false, false, true, nil},
		{"0.0.0.0:8080", false, false, false, access.ErrNeedsTLS},
		{":8080", false, false, false, access.ErrNeedsTLS},
		{"studio.example:8080", false, false, false, access.ErrNeedsTLS},
		{"192.0.2.1:8080", false, true, false, nil},
		{"192.0.2.1:8080", true, false, false, nil},
		{"192.0.2.1:8080", true, true, true, access.ErrNeedsAuthentication},
		{":8080", true, false, true, access.ErrNeedsAuthentication},
	} {
		if err := access.CheckListen(c.addr, c.tls, c.insecure, c.noAuth); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := access.CheckListen("8080", false, false, false); err == nil {
		t.Error("a port without an address is accepted")
	}
}
