package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// testServer is a web server in this process, with the event feed.
type testServer struct {
	*store.Store
	clients server
}

func newTestServer(t *testing.T) testServer {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	f := testServer{Store: store.New(pool, g), clients: server{secret: strings.Repeat("s", access.MinSecret)}}
	secret, err := access.NewSecret(f.clients.secret)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := access.New(access.Options{ReadOnly: secret})
	if err != nil {
		t.Fatal(err)
	}
	channels := []string{g.Channel("ingest"), g.ControlChannel(), g.EventsChannel()}
	listener := notify.New(pool, notify.Options{Channels: channels})
	feed := eventfeed.New(eventfeed.Options{Reader: f.Store, Wake: listener})
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = listener.Run(ctx) }) // both end only when ctx is done
	all.Go(func() { _ = feed.Run(ctx) })
	t.Cleanup(func() { stop(); all.Wait() })
	handler, err := web.New(web.Options{
		Store: f.Store, Guard: guard,
		Subscribe: func(after int64, keep func(store.Event) bool) web.Subscription { return feed.Subscribe(after, keep) },
		OnError:   func(route string, err error) { t.Errorf("%s: %v", route, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(handler.Handler())
	t.Cleanup(ts.Close)
	t.Cleanup(handler.Drain)
	f.clients.address = ts.Listener.Addr().String()
	return f
}

// events returns the ids of all events.
func (f testServer) events(t *testing.T) (ids []int64) {
	t.Helper()
	for {
		q := store.EventQuery{}
		if len(ids) > 0 {
			q.After = ids[len(ids)-1]
		}
		page, err := f.Events(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return ids
		}
		for _, e := range page {
			ids = append(ids, e.ID)
		}
	}
}

// submitAndCancel makes events, alone and many in one transaction.
func (f testServer) submitAndCancel(t *testing.T, n int) {
	for i := range n {
		subs := make([]store.Submission, 1+i%4)
		for j := range subs {
			subs[j] = store.Submission{Source: fmt.Sprintf("/%d-%d", i, j)}
		}
		receipts, err := f.SubmitAll(t.Context(), subs)
		if err != nil {
			t.Error(err)
			return
		}
		if err := f.Cancel(t.Context(), receipts[0].ID); err != nil {
			t.Error(err)
			return
		}
	}
}

func TestStreams_ReceiveEveryEventOnce(t *testing.T) {
	const streams, writers, rounds = 200, 4, 25
	f := newTestServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ready, followed, written sync.WaitGroup
	var all []*follower
	for i := range streams {
		ready.Add(1)
		fo := &follower{server: f.clients, reconnectWithin: 100 * time.Millisecond, onOpen: ready.Done}
		if i%2 == 0 { // fewer messages than there will be events
			fo.dropAfter = 60
		}
		all = append(all, fo)
		followed.Go(func() {
			if err := fo.follow(ctx); err != nil {
				t.Errorf("stream %d: %v", i, err)
				if fo.count.From == 0 {
					ready.Done()
				}
			}
		})
	}
	ready.Wait()
	for range writers {
		written.Go(func() { f.submitAndCancel(t, rounds) })
	}
	written.Wait()
	ids := f.events(t)
	last := ids[len(ids)-1]
	waittest.Until(t, "every stream has the last event, or has failed", func() bool {
		return t.Failed() || !slices.ContainsFunc(all, func(fo *follower) bool { return fo.last.Load() < last })
	})
	cancel()
	followed.Wait()
	drops := 0
	var counts []streamCount
	for i, fo := range all {
		counts = append(counts, fo.count)
		if drops += fo.drops; fo.count.Last != last || fo.count.N == 0 || fo.dropAfter > 0 && fo.drops == 0 {
			t.Errorf("stream %d received %d events, up to %d of %d, over %d drops", i, fo.count.N, fo.count.Last, last, fo.drops)
		}
	}
	for _, wrong := range compareStreams(ids, counts) {
		t.Error(wrong)
	}
	t.Logf("%d events, received by %d streams over %d drops", len(ids), streams, drops)
}

// mostPerStream is how much memory, heap and stacks, an idle stream may use, including its client.
// net/http uses 40 KiB for a request.
const mostPerStream = 48 << 10

// memoryInUse returns the size of the heap and the stacks.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves the contents of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// This test is not parallel, so that it measures no other test.
func TestStream_UsesLittleMemoryWhenIdle(t *testing.T) {
	const streams = 200
	f := newTestServer(t)
	open := func(n int) {
		for range n {
			s, err := f.clients.openStream(t.Context(), "/api/v1/events/stream", 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			// The stream is idle after its first message.
			if _, err := s.Read(make([]byte, 256)); err != nil {
				t.Fatal(err)
			}
		}
	}
	open(20) // the first streams allocate what all share
	f.submitAndCancel(t, 1)
	before := memoryInUse()
	open(streams)
	each := (memoryInUse() - before) / streams
	t.Logf("%d bytes per stream, with its client", each)
	if each > mostPerStream {
		t.Errorf("%d bytes per stream; the limit is %d", each, mostPerStream)
	}
}
