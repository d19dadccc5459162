package web_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// startServer runs a server at a free port until the test ends or calls stop, which waits
// for the end of the server.
func startServer(t *testing.T, o web.Options) (addr string, stop func() error) {
	t.Helper()
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return l.Addr().String(), stop
}

// minimalOptions returns options for a server without a database.
func minimalOptions(t *testing.T) web.Options {
	t.Helper()
	admin, err := access.NewSecret(adminText)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := access.New(access.Options{Admin: admin})
	if err != nil {
		t.Fatal(err)
	}
	return web.Options{
		Store: store.New(nil, store.Video()), Guard: guard, Healthy: textHandler("well"), Grace: 50 * time.Millisecond,
	}
}

func TestNew_RejectsInvalidOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*web.Options){
		"no store":        func(o *web.Options) { o.Store = nil },
		"no guard":        func(o *web.Options) { o.Guard = nil },
		"base":            func(o *web.Options) { o.BasePath = "cue" },
		"base with slash": func(o *web.Options) { o.BasePath = "/cue/" },
		"pattern":         func(o *web.Options) { o.BasePath = "/{x}" },
		"no key":          func(o *web.Options) { o.CertFile = "x" },
		"public URL":      func(o *web.Options) { o.PublicURL = "studio.example" },
		"URL with slash":  func(o *web.Options) { o.PublicURL = "https://studio.example/" },
	} {
		o := minimalOptions(t)
		change(&o)
		if _, err := web.New(o); err == nil {
			t.Errorf("%s: made", name)
		}
	}
}

func TestServe_RejectsAPublicAddressWithoutTLS(t *testing.T) {
	t.Parallel()
	s, err := web.New(minimalOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), l); !errors.Is(err, access.ErrNeedsTLS) {
		t.Errorf("without TLS, for everybody: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is left: %v", err)
	}
}

func TestServe_ClosesConnectionsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	o := minimalOptions(t)
	o.MaxConnections = 3
	addr, _ := startServer(t, o)
	// answered opens a connection and asks for something, which it keeps open.
	answered := func() (net.Conn, bool) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") // it may be closed already
		line, _ := bufio.NewReader(c).ReadString('\n')
		return c, strings.HasPrefix(line, "HTTP/1.1 200 ")
	}
	var first net.Conn
	for n := range 3 {
		c, ok := answered()
		if first = c; !ok {
			t.Fatalf("connection %d is not served", n)
		}
	}
	if _, ok := answered(); ok {
		t.Error("a fourth is served")
	}
	first.Close()
	since := time.Now()
	for ok := false; !ok; _, ok = answered() { // when the server has seen it
		if time.Since(since) > 10*time.Second {
			t.Fatal("none is served in the place of one that ended")
		}
	}
}

func TestServe_WaitsForRequestsAtShutdown(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	o := minimalOptions(t)
	o.Grace = 10 * time.Second
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "late")
	})
	addr, stop := startServer(t, o)
	answered := make(chan string, 1)
	go func() {
		r, _ := http.NewRequest("GET", "http://"+addr+"/metrics", nil)
		r.Header.Set("Authorization", "Bearer "+adminText)
		tr := &http.Transport{DisableKeepAlives: true}
		resp, err := tr.RoundTrip(r)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answered <- string(body)
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	waittest.Until(t, "the server refuses new connections", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(release)
	if body := <-answered; body != "late" {
		t.Errorf("answer is %q", body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestServe_ClosesConnectionsAfterTheGrace(t *testing.T) {
	t.Parallel()
	o := minimalOptions(t)
	entered := make(chan struct{})
	var left atomic.Bool
	o.Metrics = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		time.Sleep(100 * time.Millisecond) // what the handler still does after its cancel
		left.Store(true)
	})
	addr, stop := startServer(t, o)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", adminText)
	<-entered
	if err := stop(); err != nil {
		t.Error(err)
	}
	if !left.Load() {
		t.Error("it ended before what it serves")
	}
}

func TestServe_ClosesConnectionsAtOnceWhenAborted(t *testing.T) {
	t.Parallel()
	o := minimalOptions(t)
	entered, abort := make(chan struct{}), make(chan struct{})
	o.Grace, o.Abort = time.Hour, abort
	o.Metrics = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
	addr, stop := startServer(t, o)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", adminText)
	<-entered
	time.AfterFunc(50*time.Millisecond, func() { close(abort) }) // while the server waits for the request
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
		t.Error("the aborted request has a response")
	}
}

// writeCertificate writes a certificate and its key into dir. It returns the certificate.
func writeCertificate(t *testing.T, dir string, serial int64) *x509.Certificate {
	t.Helper()
	key, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err2 := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	private, err3 := x509.MarshalPKCS8PrivateKey(key)
	cert, err4 := x509.ParseCertificate(der)
	err5 := os.WriteFile(filepath.Join(dir, "cert"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	err6 := os.WriteFile(filepath.Join(dir, "key"),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestServe_RequiresTLS12(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert := writeCertificate(t, dir, 1)
	o := minimalOptions(t)
	o.CertFile, o.KeyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	addr, _ := startServer(t, o)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		tr := &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: version, MaxVersion: version},
			DisableKeepAlives: true, ForceAttemptHTTP2: true,
		}
		resp, err := (&http.Client{Transport: tr}).Get("https://" + addr + "/healthz")
		if (err == nil) != ok {
			t.Errorf("version %x: %v", version, err)
		}
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.Header.Get("Strict-Transport-Security") == "" || resp.ProtoMajor != 2 {
			t.Errorf("%s %v", resp.Proto, resp.Header)
		}
		tr.CloseIdleConnections()
	}
	o.KeyFile = filepath.Join(dir, "none")
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), l); err == nil {
		t.Error("the server serves without its key")
	}
}

func TestCertificate_IsReloadedAndTheOldOneServedOnErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	var reported []error
	get := web.Certificate(cert, key, 0, func(err error) { reported = append(reported, err) })
	if _, err := get(); err == nil || len(reported) > 0 {
		t.Errorf("without a certificate: %v, reported %v", err, reported)
	}
	then := time.Now().Add(-time.Hour)
	serial := func(want int64, stamp time.Duration) {
		t.Helper()
		for _, name := range []string{cert, key} {
			if err := os.Chtimes(name, then.Add(stamp), then.Add(stamp)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		for range 3 {
			pair, err := get()
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(pair.Certificate[0])
			if err != nil || leaf.SerialNumber.Int64() != want {
				t.Errorf("serial is %v, %v; want %d", leaf.SerialNumber, err, want)
			}
		}
	}
	writeCertificate(t, dir, 1)
	serial(1, 0)
	writeCertificate(t, dir, 2)
	serial(2, time.Minute)
	if err := os.WriteFile(key, []byte("half of a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	serial(2, 2*time.Minute)
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	serial(2, 3*time.Minute)
	if len(reported) != 2 { // each error once
		t.Errorf("reported %v, want two errors", reported)
	}
	writeCertificate(t, dir, 3)
	serial(3, 4*time.Minute)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if serial(3, 5*time.Minute); len(reported) != 3 {
		t.Errorf("reported %v, want three errors", reported)
	}
}

func TestServe_EndsRequestsWhenTheListenerFails(t *testing.T) {
	t.Parallel()
	o := minimalOptions(t)
	entered, left := make(chan struct{}), make(chan struct{})
	o.Metrics = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer close(left)
		close(entered)
		<-r.Context().Done()
	})
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(t.Context(), l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", adminText)
	<-entered
	l.Close()
	if err := <-ended; err == nil {
		t.Error("it ended without an error")
	}
	select {
	case <-left:
	default:
		t.Error("it ended before what it serves")
	}
}

func TestServe_DisconnectsAClientWithEndlessHeaders(t *testing.T) {
	t.Parallel()
	addr, _ := startServer(t, minimalOptions(t))
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { fmt.Fprintf(c, "GET / HTTP/1.1\r\nX: %s", strings.Repeat("x", 64<<10)) }()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestPublished_SendsLargeFilesOnOneConnection(t *testing.T) {
	t.Parallel()
	o := minimalOptions(t)
	o.Published = t.TempDir()
	id := store.ID{7}
	if err := os.MkdirAll(filepath.Join(o.Published, id.String(), "gen"), 0o755); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 3<<20+17)
	_, _ = rand.Read(content)
	if err := os.WriteFile(filepath.Join(o.Published, id.String(), "gen", "a.m4s"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	addr, _ := startServer(t, o)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for _, span := range []string{"", "bytes=0-", "bytes=1-2097152", "bytes=3000000-"} {
		r, _ := http.NewRequest("GET", "http://"+addr+publishedPath(id.String())+"/gen/a.m4s", nil)
		r.Header.Set("Authorization", "Bearer "+adminText)
		if span != "" {
			r.Header.Set("Range", span)
		}
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		from, to := 0, len(content)-1
		_, _ = fmt.Sscanf(span, "bytes=%d-%d", &from, &to)
		if err != nil || string(got) != string(content[from:to+1]) {
			t.Errorf("%q: %d bytes, %v; want %d", span, len(got), err, to+1-from)
		}
	}
}
