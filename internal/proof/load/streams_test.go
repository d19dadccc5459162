package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// front is a web server in this process, with what it takes to tell of events.
type front struct {
	*store.Store
	order order
}

func newFront(t *testing.T) front {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	f := front{Store: store.New(pool, g), order: order{Secret: strings.Repeat("s", access.MinSecret)}}
	secret, err := access.NewSecret(f.order.Secret)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := access.New(access.Options{ReadOnly: secret})
	if err != nil {
		t.Fatal(err)
	}
	listener := notify.New(pool, notify.Options{Channels: []string{g.Channel("ingest"), g.RecallChannel(), g.EventsChannel()}})
	feed := eventfeed.New(eventfeed.Options{Reader: f.Store, Wake: listener})
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = listener.Run(ctx) }) // it ends with ctx alone, as the next
	all.Go(func() { _ = feed.Run(ctx) })
	t.Cleanup(func() { stop(); all.Wait() })
	server, err := web.New(web.Options{
		Store: f.Store, Guard: guard,
		Subscribe: func(after int64, keep func(store.Event) bool) web.Subscription { return feed.Subscribe(after, keep) },
		Trouble:   func(route string, err error) { t.Errorf("%s: %v", route, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(server.Handler())
	t.Cleanup(ts.Close)
	t.Cleanup(server.Drain)
	f.order.Address = ts.Listener.Addr().String()
	return f
}

// events are the ids of all there are.
func (f front) events(t *testing.T) (ids []int64) {
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
func (f front) submitAndCancel(t *testing.T, n int) {
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

func TestTwoHundredStreamsMissNothingAndGetNothingTwice(t *testing.T) {
	const streams, writers, rounds = 200, 4, 25
	f := newFront(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ready, followed, written sync.WaitGroup
	var all []*follower
	for i := range streams {
		ready.Add(1)
		fo := &follower{order: f.order, away: 100 * time.Millisecond, ready: ready.Done}
		if i%2 == 0 { // fewer than there will be events
			fo.patience = 60
		}
		all = append(all, fo)
		followed.Go(func() {
			if err := fo.follow(ctx); err != nil {
				t.Errorf("stream %d: %v", i, err)
				if fo.account.From == 0 {
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
	truth := f.events(t)
	last := truth[len(truth)-1]
	late := time.Now().Add(time.Minute)
	for _, fo := range all {
		for fo.last.Load() < last && time.Now().Before(late) && !t.Failed() {
			time.Sleep(time.Millisecond) // between two looks
		}
	}
	cancel()
	followed.Wait()
	drops := 0
	var accounts []account
	for i, fo := range all {
		accounts = append(accounts, fo.account)
		if drops += fo.drops; fo.account.Last != last || fo.account.N == 0 || fo.patience > 0 && fo.drops == 0 {
			t.Errorf("stream %d was told of %d events, up to %d of %d, over %d drops", i, fo.account.N, fo.account.Last, last, fo.drops)
		}
	}
	for _, wrong := range compare(truth, accounts) {
		t.Error(wrong)
	}
	t.Logf("%d events, told to %d streams over %d drops", len(truth), streams, drops)
}

// mostPerStream is what an idle stream may take of the memory, heap and stacks, with
// the client's end of it. As a request of net/http it would be 40 KiB.
const mostPerStream = 20 << 10

// held is what the program holds in memory now: heap and stacks.
func held() int64 {
	runtime.GC()
	runtime.GC() // the first leaves what is in pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Not in parallel: others would be measured, too.
func TestAnIdleStreamIsCheap(t *testing.T) {
	const streams = 200
	f := newFront(t)
	open := func(n int) {
		for range n {
			s, err := f.order.open(t.Context(), "/api/v1/events/stream", 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			// It is idle when it has said where it is.
			if _, err := s.Read(make([]byte, 256)); err != nil {
				t.Fatal(err)
			}
		}
	}
	open(20) // what the first ones make is for all
	f.submitAndCancel(t, 1)
	before := held()
	open(streams)
	each := (held() - before) / streams
	t.Logf("%d bytes for each stream, with its client", each)
	if each > mostPerStream {
		t.Errorf("%d bytes for each stream; %d is the most", each, mostPerStream)
	}
}
