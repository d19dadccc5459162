package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

// message is one message of a stream.
type message struct{ id, event, data, comment string }

// streamClient is a client of a stream.
type streamClient struct {
	t        *testing.T
	resp     *http.Response
	messages chan message // closed with the stream
	cancel   context.CancelFunc
	retry    atomic.Int64
}

// openStream opens a stream; last is the value of the header Last-Event-ID.
func (b *testServer) openStream(path, last string) *streamClient {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", b.url+api+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+readText)
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	tr := &http.Transport{}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	l := &streamClient{t: b.t, resp: resp, messages: make(chan message, 1000), cancel: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.read()
	}()
	b.t.Cleanup(func() {
		cancel()
		<-done
		resp.Body.Close()
		tr.CloseIdleConnections()
	})
	return l
}

func (l *streamClient) read() {
	defer close(l.messages)
	var m message
	lines := bufio.NewScanner(l.resp.Body)
	for lines.Scan() {
		line := lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if m != (message{}) {
				l.messages <- m
			}
			m = message{}
		case strings.HasPrefix(line, ":"):
			m.comment = strings.TrimSpace(line[1:])
		case name == "id":
			m.id = value
		case name == "event":
			m.event = value
		case name == "data":
			m.data = value
		case name == "retry":
			n, _ := strconv.ParseInt(value, 10, 64)
			l.retry.Store(n)
		}
	}
}

// next is the next message that is no comment; ok is false at the end.
func (l *streamClient) next() (message, bool) {
	l.t.Helper()
	enough := time.NewTimer(10 * time.Second)
	defer enough.Stop()
	for {
		select {
		case m, ok := <-l.messages:
			if ok && m.event == "" {
				continue
			}
			return m, ok
		case <-enough.C:
			l.t.Fatal("nothing came")
		}
	}
}

// wantEvents reads messages and compares their names; "end" stands for the end of the stream.
func (l *streamClient) wantEvents(names ...string) (last message) {
	l.t.Helper()
	for _, name := range names {
		m, ok := l.next()
		if got := map[bool]string{true: m.event, false: "end"}[ok]; got != name {
			l.t.Fatalf("%s came (%+v), want %s", got, m, name)
		}
		if ok {
			last = m
		}
	}
	return last
}

func TestEventStream_StartsWithItsPositionAndResumes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.submit("/before")
	l := b.openStream("/events/stream", "")
	if h := l.resp.Header; l.resp.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" ||
		h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", l.resp.StatusCode, h)
	}
	open := l.wantEvents("open")
	if l.retry.Load() != 2000 {
		t.Errorf("retry is %d", l.retry.Load())
	}
	first := b.submit("/1")
	m := l.wantEvents("submitted")
	var e store.Event
	if err := json.Unmarshal([]byte(m.data), &e); err != nil || e.Task != first || strconv.FormatInt(e.ID, 10) != m.id {
		t.Errorf("%+v, %v; the one before is %s", m, err, before)
	}
	l.cancel()
	for i := range 5 {
		b.submit(fmt.Sprint("/away", i))
	}
	// From the first place: all; from the last: what came since.
	for from, n := range map[string]int{open.id: 7, m.id: 6} {
		again := b.openStream("/events/stream", from)
		if got := again.wantEvents("open"); got.id != from {
			t.Errorf("begins at %s, want %s", got.id, from)
		}
		seen := make(map[string]bool)
		for range n - 1 {
			m := again.wantEvents("submitted")
			if seen[m.id] {
				t.Errorf("twice: %+v", m)
			}
			seen[m.id] = true
		}
		again.cancel()
	}
	query := b.openStream("/events/stream?after="+m.id, "")
	query.wantEvents("open", "submitted", "submitted", "submitted", "submitted", "submitted")
	if err := b.Cancel(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	query.wantEvents("cancelled")
}

func TestEventStream_FiltersTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.openStream("/events/stream?types=cancelled,dead", "")
	l.wantEvents("open")
	id := b.submit("/a")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	l.wantEvents("cancelled")
	// The list also serves a stream if a client accepts one.
	b.openStream("/events", "").wantEvents("open")
	b.get(api+"/events/stream?types=nonsense").wantProblem(400, "invalid-request")
	b.get(api+"/events/stream?after=x").wantProblem(400, "invalid-request")
	b.do(call{
		method: "GET", path: api + "/events/stream", header: http.Header{"Last-Event-Id": {"-4"}},
	}).wantProblem(400, "invalid-request")
}

func TestEventStream_SendsPings(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.PingInterval = 10 * time.Millisecond })
	l := b.openStream("/events/stream", "")
	l.wantEvents("open")
	for range 3 {
		select {
		case m := <-l.messages:
			if m.comment != "ping" {
				t.Errorf("%+v", m)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no ping")
		}
	}
}

func TestEventStream_SendsResyncForPrunedEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/a")
	old := b.openStream("/events/stream", "").wantEvents("open")
	b.submit("/b")
	b.exec("update outbox set at = now() - interval '1 day'")
	if _, _, err := b.PruneEvents(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	l := b.openStream("/events/stream", old.id)
	m := l.wantEvents("open", "resync")
	l.wantEvents("end")
	var at struct{ After int64 }
	if err := json.Unmarshal([]byte(m.data), &at); err != nil || strconv.FormatInt(at.After, 10) != m.id {
		t.Errorf("%+v, %v", m, err)
	}
	b.get(api+"/events?after=1").wantProblem(410, "events-gone")

	// It goes on from there.
	l = b.openStream("/events/stream", m.id)
	l.wantEvents("open")
	b.submit("/c")
	l.wantEvents("submitted")

	b.openStream("/tasks/"+id.String()+"/events?after=1", "").wantEvents("resync", "end")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.openStream("/tasks/"+id.String()+"/events", m.id).wantEvents("cancelled", "end")
	b.openStream("/tasks/"+id.String()+"/events?after=1", "").wantEvents("resync", "end")
	b.openStream("/tasks/"+id.String()+"/events?after=0", "").wantEvents("cancelled", "end")
}

// After a backup is brought back, ids are lower than those that clients remember.
func TestEventStream_SendsResyncForUnknownEventIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/a")
	here := b.openStream("/events/stream", "").wantEvents("open")
	n, err := strconv.ParseInt(here.id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	later := strconv.FormatInt(n+1<<20, 10)
	for _, path := range []string{"/events/stream", "/events/stream?types=completed"} {
		l := b.openStream(path, later)
		if m := l.wantEvents("open", "resync"); m.id != here.id {
			t.Errorf("%s goes on at %s, want %s", path, m.id, here.id)
		}
		l.wantEvents("end")
	}
	b.openStream("/tasks/"+id.String()+"/events", later).wantEvents("resync", "end")
	b.get(api+"/events?after="+later).wantProblem(410, "events-gone")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.openStream("/tasks/"+id.String()+"/events", later).wantEvents("resync", "end")
	b.openStream("/events/stream", here.id).wantEvents("open", "cancelled") // a place that is there
}

// failingSubscription is a subscription that returns an error.
type failingSubscription struct{ err error }

func (b failingSubscription) Next(context.Context) ([]store.Event, error) { return nil, b.err }
func (failingSubscription) Close()                                        {}

func TestEventStream_SendsResyncToSlowClients(t *testing.T) {
	t.Parallel()
	for err, want := range map[error][]string{
		eventfeed.ErrSlow:   {"open", "resync", "end"},
		eventfeed.ErrClosed: {"open", "end"}, // it goes on from where it was
	} {
		b := setup(t, func(o *web.Options) {
			o.Subscribe = func(int64, func(store.Event) bool) web.Subscription {
				return failingSubscription{fmt.Errorf("read: %w", err)}
			}
		})
		b.openStream("/events/stream", "").wantEvents(want...)
	}
}

func TestStreamLimit_CountsStreams(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.MaxStreams, o.MaxStreamsPerPrincipal = 3, 2 })
	first := b.openStream("/events/stream", "")
	first.wantEvents("open")
	b.openStream("/events/stream", "").wantEvents("open")
	got := b.do(call{method: "GET", path: api + "/events/stream", as: readText}).wantProblem(429, "too-many-streams")
	if got.header.Get("Retry-After") == "" {
		t.Errorf("%v", got.header)
	}
	key := b.key("read")
	l := b.openStream("/events/stream", "") // refused, too
	if l.resp.StatusCode != 429 {
		t.Errorf("status is %d", l.resp.StatusCode)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", b.url+api+"/events/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("another principal: %v", err)
	}
	defer resp.Body.Close()
	b.get(api+"/events/stream").wantProblem(429, "too-many-streams")
	cancel()
	first.cancel()
	waittest.Until(t, "the server accepts a stream after the others have ended", func() bool {
		l := b.openStream("/events/stream", "")
		if l.resp.StatusCode == 200 {
			return true
		}
		l.cancel()
		return false
	})
}

func TestStreams_EndWhenTheServerDrains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("/a")
	all, one := b.openStream("/events/stream", ""), b.openStream("/tasks/"+id.String()+"/events", "")
	all.wantEvents("open")
	one.wantEvents("task")
	b.server.Drain()
	all.wantEvents("end")
	one.wantEvents("end")
	b.get(api+"/events/stream").wantProblem(503, "unavailable")
	b.get(api+"/tasks").wantStatus(200, nil)
}

func TestEvents_AreListedByPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []store.ID
	for i := range 5 {
		ids = append(ids, b.submit(fmt.Sprint("/", i)))
	}
	var page struct {
		Events []store.Event
		After  int64
	}
	var seen []store.ID
	for {
		b.get(fmt.Sprintf("%s/events?limit=2&after=%d", api, page.After)).wantStatus(200, &page)
		if len(page.Events) == 0 {
			break
		}
		for _, e := range page.Events {
			seen = append(seen, e.Task)
		}
	}
	if fmt.Sprint(seen) != fmt.Sprint(ids) {
		t.Errorf("saw %v, want %v", seen, ids)
	}
	b.get(api+"/events?task_id="+ids[2].String()).wantStatus(200, &page)
	if len(page.Events) != 1 || page.Events[0].Task != ids[2] {
		t.Errorf("%+v", page)
	}
	b.get(api+"/events?after=-1").wantProblem(400, "invalid-request")
	b.get(api+"/events?types=completed").wantProblem(400, "invalid-request")
}
