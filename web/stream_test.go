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
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
	"github.com/cuelight/cuelight/web"
)

// sse is one message of a stream.
type sse struct{ id, event, data, comment string }

// listener is a client of a stream.
type listener struct {
	t        *testing.T
	resp     *http.Response
	messages chan sse // closed with the stream
	cancel   context.CancelFunc
	retry    atomic.Int64
}

// listen opens a stream; last is the header Last-Event-ID.
func (b *bundle) listen(path, last string) *listener {
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
	l := &listener{t: b.t, resp: resp, messages: make(chan sse, 1000), cancel: cancel}
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

func (l *listener) read() {
	defer close(l.messages)
	var m sse
	lines := bufio.NewScanner(l.resp.Body)
	for lines.Scan() {
		line := lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			if m != (sse{}) {
				l.messages <- m
			}
			m = sse{}
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
func (l *listener) next() (sse, bool) {
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

// want takes messages and compares their names; "end" is the end.
func (l *listener) want(names ...string) (last sse) {
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

func TestStreamBeginsWithItsPlaceAndGoesOnWithoutAGap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.submitted("/before")
	l := b.listen("/events/stream", "")
	if h := l.resp.Header; l.resp.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", l.resp.StatusCode, h)
	}
	open := l.want("open")
	if l.retry.Load() != 2000 {
		t.Errorf("retry is %d", l.retry.Load())
	}
	first := b.submitted("/1")
	m := l.want("submitted")
	var e store.Event
	if err := json.Unmarshal([]byte(m.data), &e); err != nil || e.Task != first || strconv.FormatInt(e.ID, 10) != m.id {
		t.Errorf("%+v, %v; the one before is %s", m, err, before)
	}
	l.cancel()
	for i := range 5 {
		b.submitted(fmt.Sprint("/away", i))
	}
	// From the first place: all; from the last: what came since.
	for from, n := range map[string]int{open.id: 7, m.id: 6} {
		again := b.listen("/events/stream", from)
		if got := again.want("open"); got.id != from {
			t.Errorf("begins at %s, want %s", got.id, from)
		}
		seen := make(map[string]bool)
		for range n - 1 {
			m := again.want("submitted")
			if seen[m.id] {
				t.Errorf("twice: %+v", m)
			}
			seen[m.id] = true
		}
		again.cancel()
	}
	query := b.listen("/events/stream?after="+m.id, "")
	query.want("open", "submitted", "submitted", "submitted", "submitted", "submitted")
	if err := b.Cancel(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	query.want("cancelled")
}

func TestStreamOfSomeTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.listen("/events/stream?types=cancelled,dead", "")
	l.want("open")
	id := b.submitted("/a")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	l.want("cancelled")
	// Whoever asks the list for a stream gets one.
	b.listen("/events", "").want("open")
	b.get(api+"/events/stream?types=nonsense").problem(400, "invalid-request")
	b.get(api+"/events/stream?after=x").problem(400, "invalid-request")
	b.do(call{method: "GET", path: api + "/events/stream", header: http.Header{"Last-Event-Id": {"-4"}}}).problem(400, "invalid-request")
}

func TestStreamShowsThatItIsAlive(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.Ping = 10 * time.Millisecond })
	l := b.listen("/events/stream", "")
	l.want("open")
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

func TestWhoWasAwayForTooLongIsToldToLookAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submitted("/a")
	old := b.listen("/events/stream", "").want("open")
	b.submitted("/b")
	b.exec("update outbox set at = now() - interval '1 day'")
	if _, err := engine.New(b.pool, b.Graph()).PruneEvents(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	l := b.listen("/events/stream", old.id)
	m := l.want("open", "resync")
	l.want("end")
	var at struct{ After int64 }
	if err := json.Unmarshal([]byte(m.data), &at); err != nil || strconv.FormatInt(at.After, 10) != m.id {
		t.Errorf("%+v, %v", m, err)
	}
	b.get(api+"/events?after=1").problem(410, "events-gone")

	// It goes on from there.
	l = b.listen("/events/stream", m.id)
	l.want("open")
	b.submitted("/c")
	l.want("submitted")

	b.listen("/tasks/"+id.String()+"/events?after=1", "").want("resync", "end")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.listen("/tasks/"+id.String()+"/events", m.id).want("cancelled", "end")
	b.listen("/tasks/"+id.String()+"/events?after=1", "").want("resync", "end")
	b.listen("/tasks/"+id.String()+"/events?after=0", "").want("cancelled", "end")
}

// After a backup is brought back, ids are lower than those that clients remember.
func TestPlaceOfAnotherLifeOfTheDatabaseIsToldToLookAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submitted("/a")
	here := b.listen("/events/stream", "").want("open")
	n, err := strconv.ParseInt(here.id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	later := strconv.FormatInt(n+1<<20, 10)
	for _, path := range []string{"/events/stream", "/events/stream?types=completed"} {
		l := b.listen(path, later)
		if m := l.want("open", "resync"); m.id != here.id {
			t.Errorf("%s goes on at %s, want %s", path, m.id, here.id)
		}
		l.want("end")
	}
	b.listen("/tasks/"+id.String()+"/events", later).want("resync", "end")
	b.get(api+"/events?after="+later).problem(410, "events-gone")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.listen("/tasks/"+id.String()+"/events", later).want("resync", "end")
	b.listen("/events/stream", here.id).want("open", "cancelled") // a place that is there
}

// broken is a subscription that has come to an end.
type broken struct{ err error }

func (b broken) Next(context.Context) ([]store.Event, error) { return nil, b.err }
func (broken) Close()                                        {}

func TestASlowClientIsToldToLookAnew(t *testing.T) {
	t.Parallel()
	for err, want := range map[error][]string{
		eventfeed.ErrSlow:   {"open", "resync", "end"},
		eventfeed.ErrClosed: {"open", "end"}, // it goes on from where it was
	} {
		b := setup(t, func(o *web.Options) {
			o.Subscribe = func(int64, func(store.Event) bool) web.Subscription { return broken{fmt.Errorf("read: %w", err)} }
		})
		b.listen("/events/stream", "").want(want...)
	}
}

func TestStreamsAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.Streams, o.StreamsEach = 3, 2 })
	first := b.listen("/events/stream", "")
	first.want("open")
	b.listen("/events/stream", "").want("open")
	got := b.do(call{method: "GET", path: api + "/events/stream", as: readText}).problem(429, "too-many-streams")
	if got.header.Get("Retry-After") == "" {
		t.Errorf("%v", got.header)
	}
	key := b.key("read")
	l := b.listen("/events/stream", "") // refused, too
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
	b.get(api+"/events/stream").problem(429, "too-many-streams")
	cancel()
	first.cancel()
	for since := time.Now(); ; time.Sleep(time.Millisecond) { // the server learns of it when it does
		l := b.listen("/events/stream", "")
		if l.resp.StatusCode == 200 {
			break
		}
		if l.cancel(); time.Since(since) > time.Minute {
			t.Fatal("their places are not given to others")
		}
	}
}

func TestStreamsEndWhenTheServerDrains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submitted("/a")
	all, one := b.listen("/events/stream", ""), b.listen("/tasks/"+id.String()+"/events", "")
	all.want("open")
	one.want("task")
	b.server.Drain()
	all.want("end")
	one.want("end")
	b.get(api+"/events/stream").problem(503, "unavailable")
	b.get(api+"/tasks").want(200, nil)
}

func TestEventsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []store.ID
	for i := range 5 {
		ids = append(ids, b.submitted(fmt.Sprint("/", i)))
	}
	var page struct {
		Events []store.Event
		After  int64
	}
	var seen []store.ID
	for {
		b.get(fmt.Sprintf("%s/events?limit=2&after=%d", api, page.After)).want(200, &page)
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
	b.get(api+"/events?task_id="+ids[2].String()).want(200, &page)
	if len(page.Events) != 1 || page.Events[0].Task != ids[2] {
		t.Errorf("%+v", page)
	}
	b.get(api+"/events?after=-1").problem(400, "invalid-request")
	b.get(api+"/events?types=completed").problem(400, "invalid-request")
}
