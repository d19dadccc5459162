package web_test

import (
	"bufio"
	"context"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// openTestStream opens a stream of all events and reads its headers.
func openTestStream(t *testing.T, addr string) (net.Conn, error) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	requestStream(c, 1, "")
	r := bufio.NewReaderSize(c, 16)
	for {
		if line, err := r.ReadString('\n'); err != nil || line == "\r\n" {
			return c, err
		}
	}
}

// streamOptions are those of a server without a database.
func streamOptions(t *testing.T, sub web.Subscription) web.Options {
	o := minimalOptions(t)
	o.Store = store.New(watermarkDB{}, store.Video())
	o.Subscribe = func(int64, func(store.Event) bool) web.Subscription { return sub }
	return o
}

func TestStream_CountsAsAConnectionUntilItEnds(t *testing.T) {
	t.Parallel()
	o := streamOptions(t, idleSubscription{})
	o.MaxConnections = 2
	addr, _ := startServer(t, o)
	first, err := openTestStream(t, addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openTestStream(t, addr); err != nil {
		t.Fatal(err)
	}
	if _, err := openTestStream(t, addr); err == nil {
		t.Error("a third connection is served")
	}
	first.Close()
	waittest.Until(t, "a connection is served in place of one that ended", func() bool {
		_, err := openTestStream(t, addr)
		return err == nil
	})
}

// endlessSubscription always has large events. It closes entered when it is asked first.
type endlessSubscription struct {
	idleSubscription
	entered chan struct{}
	once    sync.Once
}

func (s *endlessSubscription) Next(context.Context) ([]store.Event, error) {
	s.once.Do(func() { close(s.entered) })
	data := []byte(`{"error":"` + strings.Repeat("x", 1<<20) + `"}`)
	return []store.Event{{ID: 1, Type: store.AttemptFailed, Task: store.ID{1}, Data: data}}, nil
}

func TestServe_ClosesStreamsThatTheirClientsDoNotRead(t *testing.T) {
	t.Parallel()
	for name, aborts := range map[string]bool{"after the grace": false, "when aborted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := &endlessSubscription{entered: make(chan struct{})}
			o := streamOptions(t, sub)
			abort := make(chan struct{})
			o.Abort, o.Grace = abort, 50*time.Millisecond
			if aborts {
				o.Grace = time.Hour
			}
			addr, stop := startServer(t, o)
			if _, err := openTestStream(t, addr); err != nil {
				t.Fatal(err)
			}
			<-sub.entered
			if aborts {
				time.AfterFunc(50*time.Millisecond, func() { close(abort) }) // while the server waits for the stream
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// eventLog is a database with some events.
type eventLog struct {
	mu     sync.Mutex
	events []store.Event
}

func (l *eventLog) EventWatermark(context.Context) (int64, error) { return 1 << 20, nil }

func (l *eventLog) Events(_ context.Context, q store.EventQuery) (events []store.Event, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.ID > q.After {
			events = append(events, e)
		}
	}
	return events, nil
}

func (l *eventLog) add(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, store.Event{ID: id, Type: store.TaskSubmitted, Task: store.ID{1}})
}

// The test is not parallel, because it measures the memory of the whole process.
func TestStreams_TakeLittleMemoryWhileIdle(t *testing.T) {
	const n, limit = 300, 48 << 10
	var events eventLog
	feed := eventfeed.New(eventfeed.Options{Reader: &events, PollInterval: 5 * time.Millisecond})
	o := streamOptions(t, nil)
	o.Subscribe = func(after int64, keep func(store.Event) bool) web.Subscription { return feed.Subscribe(after, keep) }
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = feed.Run(ctx) })
	running.Go(func() { _ = s.Serve(ctx, l) })
	defer running.Wait()
	defer cancel()
	before := usedMemory()
	conns := make([]net.Conn, n)
	for i := range conns {
		if conns[i], err = openTestStream(t, l.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	waitForStreams(t, s, n)
	text := make([]byte, 4096)
	for id := range int64(3) {
		events.add(1<<20 + 1 + id)
		for _, c := range conns {
			for received := ""; !strings.Contains(received, "event: submitted"); {
				k, err := c.Read(text)
				if err != nil {
					t.Fatal(err)
				}
				received += string(text[:k])
			}
		}
	}
	var each int
	defer func() { t.Logf("%d bytes per stream, with the client's end", each) }()
	waittest.Until(t, "idle streams take little memory", func() bool {
		each = (usedMemory() - before) / n
		return each < limit
	})
}

// usedMemory is how many bytes of memory are in use for the heap and for stacks.
func usedMemory() int {
	runtime.GC()
	runtime.GC() // frees what finalizers and pools kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
