package webhook

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
)

// sendOnce makes one attempt.
func sendOnce(t *testing.T, o Options, address string) response {
	t.Helper()
	return New(o).client.send(t.Context(), address, []string{newSecret()}, "id", "{}")
}

func TestClient_NeverCallsAPrivateAddress(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	_, port, _ := net.SplitHostPort(rc.Listener.Addr().String())
	for _, host := range []string{
		"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]", "2130706433", "0x7f.1",
		"10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254",
		"[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "224.0.0.1", "255.255.255.255",
	} {
		r := sendOnce(t, Options{}, "http://"+host+":"+port+"/")
		numbers := strings.Contains(host, "0x7f") || host == "2130706433" // some systems resolve these as names
		if r.isDelivered() || !numbers && !strings.Contains(r.failure, "not a public address") {
			t.Errorf("%s: %+v", host, r)
		}
	}
	if n := len(rc.requests()); n != 0 {
		t.Errorf("called %d times", n)
	}
}

func TestClient_TreatsARedirectAsAFailure(t *testing.T) {
	t.Parallel()
	inner := newReceiverOn(t, "127.0.0.2:0", nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		rc := newReceiver(t, func(_ int, _ request, w http.ResponseWriter) {
			w.Header().Set("Location", inner.URL)
			w.WriteHeader(status)
		})
		// The target is an allowed address.
		r := sendOnce(t, Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, rc.URL)
		if r.isDelivered() || r.status != status || !strings.Contains(r.failure, "redirects are not followed") {
			t.Errorf("%d: %+v", status, r)
		}
	}
	if n := len(inner.requests()); n != 0 {
		t.Errorf("followed %d times", n)
	}
}

// The name server returns an allowed address first and a private one later, as an
// attacker's name server would.
func TestClient_RefusesANameThatChangesToAPrivateAddress(t *testing.T) {
	t.Parallel()
	outer := newReceiver(t, nil)
	_, port, _ := net.SplitHostPort(outer.Listener.Addr().String())
	inner := newReceiverOn(t, "127.0.0.2:"+port, nil)
	dns := nameServer(t, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"))
	b := setup(t, Options{resolver: dns, AllowHTTP: true})
	h := b.add("http://rebind.example:" + port + "/?key=secret")
	b.run()
	b.submit()
	outer.waitForRequests(b, 1)
	b.submit()
	waittest.Until(b.t, "the second has failed", func() bool {
		all := b.deliveries(h)
		return len(all) == 2 && all[1].Attempts == 1
	})
	d := b.deliveries(h)[1]
	if d.Status != "pending" || !strings.Contains(d.Error, "127.0.0.2") || strings.Contains(d.Error, "secret") {
		t.Errorf("the row is %+v", d)
	}
	if len(outer.requests()) != 1 || len(inner.requests()) != 0 {
		t.Errorf("called %d and %d times", len(outer.requests()), len(inner.requests()))
	}
}

func TestClient_IgnoresTheProxyOfTheEnvironment(t *testing.T) {
	var reached atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("ALL_PROXY", proxy.URL)
	r := sendOnce(t, Options{Allow: loopback}, "http://10.1.2.3/")
	if !strings.Contains(r.failure, "not a public address") || reached.Load() != 0 {
		t.Errorf("got %+v; the proxy got %d requests", r, reached.Load())
	}
}

func TestClient_DoesNotCallTheHostsOwnAddress(t *testing.T) {
	t.Parallel()
	own := func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("8.8.8.8"), Mask: net.CIDRMask(24, 32)}}, nil
	}
	for addr, refused := range map[string]bool{"8.8.8.8": true, "8.8.8.9": false} {
		if err := New(Options{hostAddresses: own}).policy.Check(netip.MustParseAddr(addr)); (err != nil) != refused {
			t.Errorf("%s: %v", addr, err)
		}
	}
	allowed := New(Options{hostAddresses: own, Allow: []netip.Prefix{netip.MustParsePrefix("8.8.8.8/32")}})
	if err := allowed.policy.Check(netip.MustParseAddr("8.8.8.8")); err != nil {
		t.Error(err)
	}
}

func TestClient_CallsNothingIfTheHostsAddressesAreUnknown(t *testing.T) {
	t.Parallel()
	rc := newReceiver(t, nil)
	r := sendOnce(t,
		Options{Allow: loopback, hostAddresses: func() ([]net.Addr, error) { return nil, syscall.EAFNOSUPPORT }}, rc.URL)
	if r.isDelivered() || !strings.Contains(r.failure, "own addresses") || len(rc.requests()) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestClient_UsesTheStatusWhateverTheBody(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"promises more than it sends": "HTTP/1.1 %d X\r\nContent-Length: 5000000000\r\n\r\nshort",
		"sends more than it promises": "HTTP/1.1 %d X\r\nContent-Length: 1\r\n\r\n" + strings.Repeat("long", 50_000),
		"says no length, and much":    "HTTP/1.1 %d X\r\n\r\n" + strings.Repeat("x", 8<<20),
		"breaks off in a chunk":       "HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\nshort",
		"breaks off before its body":  "HTTP/1.1 %d X\r\nContent-Length: 10\r\n\r\n",
		"has 1xx before":              "HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\nHTTP/1.1 %d X\r\n\r\n",
	} {
		for status, want := range map[int]bool{200: true, 299: true, 404: false, 500: false} {
			text := strings.Replace(answer, "%d", fmt.Sprint(status), 1)
			r := sendOnce(t, Options{Allow: loopback}, serveRaw(t, text, false))
			if r.isDelivered() != want || r.status != status {
				t.Errorf("%s, %d: %+v", name, status, r)
			}
		}
	}
}

func TestClient_DoesNotWaitForAnEndlessBody(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	r := sendOnce(t, Options{Allow: loopback}, serveRaw(t, "HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\n12345", true))
	if took := time.Since(begun); !r.isDelivered() || took > bodyTimeout+5*time.Second {
		t.Errorf("after %v: %+v", took, r)
	}
}

func TestClient_TreatsAnInvalidResponseAsAFailure(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"closes early":         serveRaw(t, "", false),
		"breaks off in a line": serveRaw(t, "HTTP/1.1 20", false),
		"speaks no HTTP":       serveRaw(t, "220 smtp.example.com ESMTP\r\n", false),
		"endless headers":      serveRaw(t, "HTTP/1.1 200 X\r\nA: "+strings.Repeat("a", 1<<20), false),
		"never answers":        serveRaw(t, "HTTP/1.1 200 X\r\n", true),
		"is not there":         unusedAddress(t),
	} {
		r := sendOnce(t, Options{Allow: loopback, Timeout: 2 * time.Second}, address+"?key=secret")
		if r.isDelivered() || r.status != 0 || r.failure == "" || strings.Contains(r.failure, "secret") ||
			len(r.failure) > 600 {
			t.Errorf("%s: %+v", name, r)
		}
		if name == "never answers" && r.failure != "no answer within 2s" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestClient_VerifiesTLS(t *testing.T) {
	t.Parallel()
	rc := &receiver{t: t}
	rc.Server = httptest.NewUnstartedServer(rc)
	rc.Config.ErrorLog = quietLog()
	rc.StartTLS()
	t.Cleanup(rc.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(rc.Certificate())
	if r := sendOnce(t, Options{Allow: loopback, rootCAs: trusted}, rc.URL); !r.isDelivered() {
		t.Errorf("with its certificate: %+v", r)
	}
	if r := sendOnce(t, Options{Allow: loopback}, rc.URL); r.isDelivered() || !strings.Contains(r.failure, "certificate") {
		t.Errorf("without its certificate: %+v", r)
	}
	if n := len(rc.requests()); n != 1 {
		t.Errorf("called %d times", n)
	}
}

func TestClient_UsesANewConnectionPerDelivery(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	w := New(Options{Allow: loopback})
	for range 3 {
		w.client.send(t.Context(), s.URL, []string{newSecret()}, "id", "{}")
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("%d connections", n)
	}
}

func TestSignatures_FollowStandardWebhooks(t *testing.T) {
	t.Parallel()
	// The example in the specification.
	const (
		secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
		id     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
		body   = `{"test": 2432232314}`
	)
	at := time.Unix(1614265330, 0)
	got, err := signatures([]string{secret}, id, at, body)
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("signed %s, %v, want %s", got, err, want)
	}
	for _, bad := range []string{"", "whsec_", "whsec_not base64"} {
		if got, err := signatures([]string{bad}, id, at, body); err == nil {
			t.Errorf("signed %s with %q", got, bad)
		}
	}
	if a, b := newSecret(), newSecret(); a == b || len(a) != len(secretPrefix)+44 {
		t.Errorf("secrets are %s and %s", a, b)
	}
}

// serveRaw answers each request with text, and then hangs or closes.
func serveRaw(t *testing.T, text string, hang bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	over, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over); l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, text)
			if hang {
				<-over
			}
			conn.Close()
		}
	}()
	return "http://" + l.Addr().String() + "/"
}

// unusedAddress returns the URL of a port on which nothing listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return "http://" + l.Addr().String() + "/"
}

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
			// The question ends with its type and class. Drop the rest.
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
			_, _ = conn.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}
