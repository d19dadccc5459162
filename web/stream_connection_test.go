package web_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// newStreamServer returns a server that serves streams without a database.
func newStreamServer(t *testing.T, sub web.Subscription, ping time.Duration, trouble func(string, error)) *web.Server {
	t.Helper()
	o := minimalOptions(t)
	o.Store = store.New(watermarkDB{}, store.Video())
	o.Subscribe = func(int64, func(store.Event) bool) web.Subscription { return sub }
	o.PingInterval, o.OnError = ping, trouble
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// waitForStreams waits until n streams are open.
func waitForStreams(t *testing.T, s *web.Server, n int) {
	t.Helper()
	waittest.Equal(t, "the number of open streams", n, s.Streams)
}

// requestStream requests all events by HTTP/1, with the headers in more.
func requestStream(to io.Writer, minor int, more string) {
	fmt.Fprintf(to, "GET %s/events/stream HTTP/1.%d\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n",
		api, minor, adminText, more)
}

func TestStream_PingsAndEndsOverEveryProtocol(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tls   bool
		proto string // the only protocol that the client offers
		minor int
	}{
		"HTTP/1.0": {minor: 0},
		"HTTP/1.1": {minor: 1},
		"TLS":      {tls: true, proto: "http/1.1", minor: 1},
		"HTTP/2":   {tls: true, proto: "h2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreamServer(t, idleSubscription{}, 20*time.Millisecond, func(route string, err error) {
				t.Errorf("%s: %v", route, err)
			})
			ts := httptest.NewUnstartedServer(s.Handler())
			ts.EnableHTTP2 = c.proto == "h2"
			if c.tls {
				ts.StartTLS()
			} else {
				ts.Start()
			}
			t.Cleanup(ts.Close)
			t.Cleanup(s.Drain)
			var resp *http.Response
			if c.proto == "h2" {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ts.URL+api+"/events/stream", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+adminText)
				if resp, err = ts.Client().Do(r); err != nil || resp.ProtoMajor != 2 {
					t.Fatalf("%v, %v", resp, err)
				}
			} else {
				conn, err := net.Dial("tcp", ts.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				if c.tls {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{c.proto}})
				}
				requestStream(conn, c.minor, "")
				if resp, err = http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
					t.Fatal(err)
				}
			}
			defer resp.Body.Close()
			lines, pings := bufio.NewScanner(resp.Body), 0
			for pings < 3 && lines.Scan() {
				if lines.Text() == ": ping" {
					pings++
				}
			}
			if open := s.Streams(); open != 1 || pings < 3 {
				t.Fatalf("%d pings, %v; %d are open", pings, lines.Err(), open)
			}
			s.Drain()
			for lines.Scan() {
			}
			if err := lines.Err(); err != nil {
				t.Errorf("it was cut off: %v", err)
			}
			waitForStreams(t, s, 0)
		})
	}
}

func TestStream_NoticesADisconnectedIdleClient(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"HTTP", "HTTPS"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreamServer(t, idleSubscription{}, time.Hour, func(route string, err error) {
				t.Errorf("%s: %v", route, err)
			})
			ts := httptest.NewUnstartedServer(s.Handler())
			ask := func() net.Conn {
				conn, err := net.Dial("tcp", ts.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				if name == "HTTPS" {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
				t.Cleanup(func() { conn.Close() })
				requestStream(conn, 1, "")
				if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				return conn
			}
			if name == "HTTPS" {
				ts.StartTLS()
			} else {
				ts.Start()
			}
			t.Cleanup(ts.Close)
			t.Cleanup(s.Drain)
			stays := ask()
			for range 3 { // one after the other
				ask().Close()
				waitForStreams(t, s, 1)
			}
			stays.Close()
			waitForStreams(t, s, 0)
			ask() // is accepted after the others have ended
			waitForStreams(t, s, 1)
		})
	}
}

// A late body is neither the end of the connection nor another request.
func TestStream_AcceptsARequestBodyThatArrivesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := servePipe(t, newServerWithoutDB(t, nil, func() web.Subscription { return idleSubscription{} }))
		requestStream(c, 1, "Content-Length: 2\r\n")
		go func() {
			time.Sleep(time.Second)
			_, _ = io.WriteString(c, "{}")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		defer resp.Body.Close()
		defer c.Close() // before: it would wait for the rest
		for lines := bufio.NewScanner(resp.Body); ; {
			if !lines.Scan() {
				t.Fatalf("it ended: %v", lines.Err())
			}
			if lines.Text() == ": ping" {
				return
			}
		}
	})
}

// panickingSubscription is a subscription that panics.
type panickingSubscription struct{ idleSubscription }

func (panickingSubscription) Next(context.Context) ([]store.Event, error) {
	panic("no events")
}

func TestStream_PanicEndsThatStreamAlone(t *testing.T) {
	t.Parallel()
	reported := make(chan string, 1)
	s := newStreamServer(t, panickingSubscription{}, 20*time.Millisecond, func(route string, err error) {
		reported <- route + ": " + err.Error()
	})
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	conn, err := net.Dial("tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	requestStream(conn, 1, "")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client read the whole response: %v", err)
	}
	if text := <-reported; !strings.HasPrefix(text, "GET "+api+"/events/stream: panic: no events\n") {
		t.Errorf("reported %s", text)
	}
	waitForStreams(t, s, 0)
}

// panickingWriter is a response writer that panics.
type panickingWriter struct{ *httptest.ResponseRecorder }

func (panickingWriter) Write([]byte) (int, error) { panic("no events") }

func TestStream_PanicAtItsStartReleasesItsSlot(t *testing.T) {
	t.Parallel()
	s := newStreamServer(t, idleSubscription{}, 20*time.Millisecond, func(string, error) {})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not")
			}
		}()
		s.Handler().ServeHTTP(panickingWriter{httptest.NewRecorder()},
			authorizedRequest(t.Context(), api+"/events/stream", adminText))
	}()
	if open := s.Streams(); open != 0 {
		t.Errorf("%d are open", open)
	}
}
