package web_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// watermarkDB is a database that can only return the event watermark.
type watermarkDB struct{ store.DB }

func (watermarkDB) QueryRow(context.Context, string, ...any) pgx.Row { return watermarkDB{} }

func (watermarkDB) Scan(to ...any) error {
	*to[0].(*int64) = 1 << 20
	return nil
}

// idleSubscription is a subscription without events.
type idleSubscription struct{}

func (idleSubscription) Close() {}
func (idleSubscription) Next(ctx context.Context) ([]store.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// eventsThenIdle returns the events that a client missed, then none.
type eventsThenIdle struct {
	events []store.Event
	idleSubscription
}

func (a *eventsThenIdle) Next(ctx context.Context) ([]store.Event, error) {
	if events := a.events; events != nil {
		a.events = nil
		return events, nil
	}
	return a.idleSubscription.Next(ctx)
}

// newServerWithoutDB returns a server that serves streams without a database.
func newServerWithoutDB(t *testing.T, keys access.Keys, sub func() web.Subscription) *web.Server {
	t.Helper()
	o := minimalOptions(t)
	o.Store = store.New(watermarkDB{}, store.Video())
	admin, err := access.NewSecret(adminText)
	if err != nil {
		t.Fatal(err)
	}
	if o.Guard, err = access.New(access.Options{Admin: admin, Keys: keys}); err != nil {
		t.Fatal(err)
	}
	o.Subscribe = func(int64, func(store.Event) bool) web.Subscription { return sub() }
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func authorizedRequest(ctx context.Context, path, text string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
	r.Header.Set("Authorization", "Bearer "+text)
	return r
}

func TestStreams_OfARevokedKeyEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 30 // more than anybody may be wrong
		text := "cue_aaaaaaaa_" + strings.Repeat("A", 43)
		keys := &singleKeyStore{key: access.Key{
			Name: "wall", Scope: access.Read.String(), Prefix: "aaaaaaaa", Digest: sha256.Sum256([]byte(text)),
		}}
		s := newServerWithoutDB(t, keys, func() web.Subscription { return idleSubscription{} })
		var streams sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan int, n)
		for range n {
			streams.Go(func() {
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, authorizedRequest(ctx, api+"/events/stream", text))
				ended <- w.Code
			})
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("%d have ended, one with the status %d", len(ended), <-ended)
		}
		keys.revoke()
		time.Sleep(76 * time.Second) // a minute, and a ping
		synctest.Wait()
		if len(ended) != n {
			t.Errorf("%d of %d streams have ended", len(ended), n)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, authorizedRequest(ctx, "/openapi.json", "wrong"))
		if w.Code != http.StatusUnauthorized {
			t.Errorf("others at the address are answered %d", w.Code)
		}
		cancel()
		streams.Wait()
	})
}

// chunkWriter records the size of the largest write.
type chunkWriter struct {
	*httptest.ResponseRecorder
	most int
}

func (p *chunkWriter) Write(b []byte) (int, error) {
	p.most = max(p.most, len(b))
	return p.ResponseRecorder.Write(b)
}

func TestStream_SendsManyLargeEventsInChunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, size = 1000, 4 << 10
		sub := &eventsThenIdle{}
		for i := range n {
			data := fmt.Appendf(nil, `{"error":%q}`, strings.Repeat("x", size))
			sub.events = append(sub.events, store.Event{
				ID: int64(i + 1), Type: store.AttemptFailed, Task: store.ID{1}, Data: data,
			})
		}
		s := newServerWithoutDB(t, nil, func() web.Subscription { return sub })
		w := &chunkWriter{ResponseRecorder: httptest.NewRecorder()}
		ctx, cancel := context.WithCancel(t.Context())
		var served sync.WaitGroup
		served.Go(func() { s.Handler().ServeHTTP(w, authorizedRequest(ctx, api+"/events/stream", adminText)) })
		synctest.Wait()
		cancel()
		served.Wait()
		if got := strings.Count(w.Body.String(), "event: attempt_failed\n"); got != n {
			t.Errorf("%d events came", got)
		}
		if w.most > 64<<10+size+200 {
			t.Errorf("%d bytes were kept", w.most)
		}
	})
}
