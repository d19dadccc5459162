package web_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// singleConnListener is a listener for one connection without buffers.
type singleConnListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *singleConnListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *singleConnListener) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *singleConnListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// servePipe serves one connection and returns its client end.
func servePipe(t *testing.T, s *web.Server) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	l := &singleConnListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conns <- server
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		client.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestRequestBody_ThatStallsTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := servePipe(t, newServerWithoutDB(t, nil, func() web.Subscription { return idleSubscription{} }))
		began := time.Now()
		fmt.Fprintf(c, "POST %s/pauses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"sta", api, adminText)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
		if took := time.Since(began); took < 20*time.Second || took > 40*time.Second {
			t.Errorf("the response came after %v", took)
		}
	})
}

// endlessEvents always has another event, for a client that does not read.
type endlessEvents struct{ idleSubscription }

func (endlessEvents) Next(context.Context) ([]store.Event, error) {
	return []store.Event{{ID: 1 << 21, Type: store.TaskCompleted, Task: store.ID{1}}}, nil
}

func TestStream_DisconnectsAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := servePipe(t, newServerWithoutDB(t, nil, func() web.Subscription { return endlessEvents{} }))
		fmt.Fprintf(c, "GET %s/events/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", api, adminText)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("the connection is open")
		}
	})
}

// hangingDB is a database that does not answer.
type hangingDB struct{ store.DB }

func (hangingDB) Begin(ctx context.Context) (pgx.Tx, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h hangingDB) Query(ctx context.Context, _ string, _ ...any) (pgx.Rows, error) {
	_, err := h.Begin(ctx)
	return nil, err
}

func (h hangingDB) SendBatch(ctx context.Context, _ *pgx.Batch) pgx.BatchResults {
	_, err := h.Begin(ctx)
	return batchError{err: err}
}

// batchError is the result of a batch that failed.
type batchError struct {
	pgx.BatchResults
	err error
}

func (b batchError) Close() error { return b.err }

func (h hangingDB) QueryRow(ctx context.Context, _ string, _ ...any) pgx.Row { return h.row(ctx) }

type rowError struct{ err error }

func (r rowError) Scan(...any) error { return r.err }

func (h hangingDB) row(ctx context.Context) pgx.Row {
	_, err := h.Begin(ctx)
	return rowError{err}
}

func TestRoutes_TimeOutWhenTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		id := store.ID{1}.String()
		for _, path := range []string{
			"/tasks", "/tasks/" + id, "/stages", "/events", "/events?after=7&task_id=" + id,
			"/events/stream", "/events/stream?after=7",
			"/tasks/" + id + "/events", "/tasks/" + id + "/events?after=7", "/workers?all=true", "/keys",
		} {
			o := minimalOptions(t)
			o.Store = store.New(hangingDB{}, store.Video())
			o.Subscribe = func(int64, func(store.Event) bool) web.Subscription { return idleSubscription{} }
			s, err := web.New(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			w := httptest.NewRecorder()
			began := time.Now()
			s.Handler().ServeHTTP(w, authorizedRequest(ctx, api+path, adminText))
			if took := time.Since(began); took > time.Minute || w.Code != http.StatusServiceUnavailable {
				t.Errorf("%s: %d after %v", path, w.Code, took)
			}
			cancel()
		}
	})
}

// The browser reconnects with the cookie of the renewed session.
func TestStream_EndsWithTheSessionThatOpenedIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServerWithoutDB(t, nil, func() web.Subscription { return idleSubscription{} })
		serve := func(r *http.Request) *http.Response {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			return w.Result()
		}
		login := httptest.NewRequestWithContext(t.Context(), "POST", "/login", strings.NewReader("secret="+adminText))
		login.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		cookies := serve(login).Cookies()
		if len(cookies) != 1 {
			t.Fatalf("cookies are %v", cookies)
		}
		by := func(ctx context.Context, path string, c *http.Cookie) *http.Request {
			r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
			r.AddCookie(c)
			return r
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			serve(by(t.Context(), api+"/events/stream", cookies[0]))
		}()
		time.Sleep(13 * time.Hour)
		renewed := serve(by(t.Context(), "/openapi.json", cookies[0])).Cookies()
		if len(renewed) != 1 {
			t.Fatalf("the session is not renewed: %v", renewed)
		}
		time.Sleep(10 * time.Hour)
		select {
		case <-ended:
			t.Fatal("the stream ended before its session")
		default:
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the stream is still open")
		}
		if resp := serve(by(t.Context(), "/openapi.json", renewed[0])); resp.StatusCode != 200 {
			t.Errorf("the renewed session gets the status %d", resp.StatusCode)
		}
	})
}
