package fetch

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/ssrf"
)

func TestFetch_NeverConnectsToAPrivateAddress(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { reached.Add(1) })
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for _, host := range []string{
		"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]",
		"10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254",
		"[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "224.0.0.1", "255.255.255.255",
	} {
		_, err := Fetch(t.Context(), "http://"+host+":"+port+"/", t.TempDir()+"/out", Options{})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v", host, err)
			continue
		}
		if !errors.Is(err, ssrf.ErrProhibited) || !e.Permanent {
			t.Errorf("%s: got %v, permanent %v", host, err, e.Permanent)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the server was reached %d times", n)
	}
}

func TestFetch_RefusesARedirectToAProhibitedAddress(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	inner := serveOn(t, "127.0.0.2:0", func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL+"/secret", http.StatusFound)
	})
	_, err := Fetch(t.Context(), s.URL, t.TempDir()+"/out", Options{Allow: allowOnly("127.0.0.1/32")})
	var e *Error
	if !errors.As(err, &e) || !e.Permanent || !errors.Is(err, ssrf.ErrProhibited) ||
		!strings.Contains(err.Error(), "127.0.0.2") {
		t.Errorf("got %v", err)
	}
	if reached.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

// The name server returns an allowed address first and another one the next time, as an
// attacker's name server would.
func TestFetch_RefusesANameThatChangesToAProhibitedAddress(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	inner := serveOn(t, "127.0.0.2:0", func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	_, port, _ := net.SplitHostPort(inner.Listener.Addr().String())
	outer := serveOn(t, "127.0.0.1:"+port, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		http.Redirect(w, r, "/again", http.StatusFound)
	})
	_ = outer
	dns := nameServer(t, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"))
	_, err := Fetch(t.Context(), "http://rebind.example:"+port+"/", t.TempDir()+"/out",
		Options{Allow: allowOnly("127.0.0.1/32"), resolver: dns})
	if !errors.Is(err, ssrf.ErrProhibited) || !strings.Contains(err.Error(), "127.0.0.2") {
		t.Errorf("got %v", err)
	}
	if reached.Load() != 0 {
		t.Error("the second address was connected to")
	}
}

func TestFetch_IgnoresTheProxyOfTheEnvironment(t *testing.T) {
	var reached atomic.Int32
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("ALL_PROXY", proxy.URL)
	_, err := Fetch(t.Context(), "http://10.1.2.3/", t.TempDir()+"/out", Options{Allow: allowOnly("127.0.0.1/32")})
	if !errors.Is(err, ssrf.ErrProhibited) || reached.Load() != 0 {
		t.Errorf("got %v; the proxy got %d requests", err, reached.Load())
	}
}

func TestFetch_DownloadsNothingIfTheHostsAddressesAreUnknown(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { reached.Add(1) })
	dir := t.TempDir()
	_, err := Fetch(t.Context(), s.URL, dir+"/out", Options{
		Allow: loopback, Partial: dir + "/part",
		hostAddresses: func() ([]net.Addr, error) { return nil, syscall.EAFNOSUPPORT },
	})
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !errors.Is(err, syscall.EAFNOSUPPORT) ||
		!strings.Contains(err.Error(), "own addresses") {
		t.Errorf("got %v, want an error that is not permanent", err)
	}
	if reached.Load() != 0 {
		t.Error("the server was reached")
	}
}

func TestFetch_FollowsRedirectsWithinLimitsAndWithoutSecrets(t *testing.T) {
	t.Parallel()
	var got http.Header
	last := serveOn(t, "127.0.0.2:0", func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.Write([]byte("video"))
	})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a":
			if _, pass, _ := r.BasicAuth(); pass != "secret" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			http.SetCookie(w, &http.Cookie{Name: "c", Value: "secret"})
			http.Redirect(w, r, "/b", http.StatusFound)
		case "/b":
			http.Redirect(w, r, last.URL, http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/ftp":
			w.Header().Set("Location", "ftp://h/secret")
			w.WriteHeader(http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/bad":
			w.Header().Set("Location", "http://u:secret@h:port/%zz")
			w.WriteHeader(http.StatusFound)
		case "/none":
			w.WriteHeader(http.StatusFound)
		}
	})
	withUser := strings.Replace(s.URL, "//", "//user:secret@", 1)
	if _, err := Fetch(t.Context(), withUser+"/a?q=secret", t.TempDir()+"/out", Options{Allow: loopback}); err != nil {
		t.Errorf("got %v", err)
	}
	for name, values := range got {
		if name == "Referer" || strings.Contains(strings.Join(values, ""), "secret") {
			t.Errorf("the other host received %s: %q", name, values)
		}
	}
	for path, want := range map[string]string{
		"/loop": "more than 3 times", "/ftp": `"ftp"`, "/file": "nowhere", "/bad": "nowhere", "/none": "nowhere",
	} {
		_, err := Fetch(t.Context(), s.URL+path, t.TempDir()+"/out", Options{Allow: loopback})
		var e *Error
		if !errors.As(err, &e) || !e.Permanent || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

func TestResolveRedirect_RefusesHTTPSToHTTP(t *testing.T) {
	t.Parallel()
	from, _ := url.Parse("https://h/a")
	if _, err := resolveRedirect(from, "http://h/a"); err == nil {
		t.Error("followed")
	}
	if to, err := resolveRedirect(from, "/b"); err != nil || to.String() != "https://h/b" {
		t.Errorf("got %v, %v", to, err)
	}
}

func TestFetch_TreatsAnUntrustedCertificateAsPermanent(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = quietLog()
	s.StartTLS()
	t.Cleanup(s.Close)
	_, err := Fetch(t.Context(), s.URL, t.TempDir()+"/out", Options{Allow: loopback})
	var e *Error
	if !errors.As(err, &e) || !e.Permanent || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}

func TestFetch_TreatsAServerThatIsDownAsTemporary(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	_, err := Fetch(t.Context(), s.URL, t.TempDir()+"/out", Options{Allow: loopback})
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }

func allowOnly(prefix string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(prefix)} }

// nameServer answers each query for an IPv4 address with the next of addrs, and repeats
// the last one. It returns no IPv6 addresses.
func nameServer(t *testing.T, addrs ...netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			reply := append([]byte(nil), buf[:n]...)
			// The question ends with its type and class. Drop the EDNS record
			// after it.
			end := 12
			for reply[end] != 0 {
				end += int(reply[end]) + 1
			}
			kind := binary.BigEndian.Uint16(reply[end+1:])
			reply = reply[:end+5]
			copy(reply[2:12], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
			if kind == 1 {
				reply[7] = 1
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				reply = append(reply, addrs[0].AsSlice()...)
				if len(addrs) > 1 {
					addrs = addrs[1:]
				}
			}
			conn.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}
