package ui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/store"
)

// fakePage is the content of a view, which a test changes.
type fakePage struct {
	loads atomic.Int32
	mu    sync.Mutex
	text  string
	err   error
	takes time.Duration
}

func (s *fakePage) set(text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.err = text, err
}

func (s *fakePage) load(context.Context, viewKey) (screen, error) {
	s.loads.Add(1)
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	return newScreen("", []fragment{{"a", "", "<p>" + s.text + "</p>"}}), s.err
}

// fakeEvents is a source of events that counts its subscriptions.
type fakeEvents struct {
	sent         chan []store.Event
	open, closed atomic.Int32
}

func (e *fakeEvents) subscribe(func(store.Event) bool) Subscription { e.open.Add(1); return e }

func (e *fakeEvents) Next(ctx context.Context) ([]store.Event, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case events := <-e.sent:
		return events, nil
	}
}

func (e *fakeEvents) Close() { e.closed.Add(1) }

// runHub runs a hub in a synctest bubble.
func runHub(t *testing.T, s *fakePage, maxStreams int) (*hub, *fakeEvents) {
	return runHubWith(t, s.load, maxStreams)
}

func runHubWith(t *testing.T, load func(context.Context, viewKey) (screen, error), maxStreams int) (*hub, *fakeEvents) {
	h, e := newHub(load, func(viewKey, error) {}, maxStreams), &fakeEvents{sent: make(chan []store.Event)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- h.run(ctx, e.subscribe) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h, e
}

func nextMessage(t *testing.T, p *subscriber) string {
	t.Helper()
	synctest.Wait()
	text, _ := p.next()
	return text
}

var boardKey = viewKey{page: "board"}

func TestHub_ReadsOncePerChangeForManyPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{text: "one"}
		h, e := runHub(t, s, 1000)
		var pages []*subscriber
		for range 500 {
			p, err := h.subscribe(t.Context(), boardKey, "ann", "")
			if err != nil {
				t.Fatal(err)
			}
			if got := nextMessage(t, p); !strings.Contains(got, "one") {
				t.Fatalf("the first message is %q", got)
			}
			pages = append(pages, p)
		}
		time.Sleep(time.Second)
		before := s.loads.Load()
		s.set("two", nil)
		for range 20 { // many events at once
			e.sent <- []store.Event{{Type: store.StageStarted}}
		}
		time.Sleep(600 * time.Millisecond)
		for i, p := range pages {
			if got := nextMessage(t, p); !strings.Contains(got, "two") || nextMessage(t, p) != "" {
				t.Fatalf("page %d got %q", i, got)
			}
			p.close()
		}
		if n := s.loads.Load() - before; n > 3 {
			t.Errorf("the view was read %d times", n)
		}
	})
}

func TestHub_IsIdleWithoutPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{}
		h, e := runHub(t, s, 10)
		time.Sleep(time.Minute)
		if s.loads.Load() != 0 || e.open.Load() != 0 {
			t.Errorf("read %d times, subscribed %d times", s.loads.Load(), e.open.Load())
		}
		p, err := h.subscribe(t.Context(), boardKey, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.close()
		time.Sleep(time.Second)
		if e.open.Load() != 1 || e.closed.Load() != 1 {
			t.Errorf("subscribed %d times, closed %d times", e.open.Load(), e.closed.Load())
		}
		before := s.loads.Load()
		time.Sleep(time.Minute)
		if s.loads.Load() != before {
			t.Error("the view is still read")
		}
		if _, err := h.read(t.Context(), viewKey{page: "other"}, "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(h.views) > 1 {
			t.Errorf("%d views are kept", len(h.views))
		}
	})
}

func TestHub_SendsMissedChangesAfterAReconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{text: "one"}
		h, _ := runHub(t, s, 10)
		first, err := h.read(t.Context(), boardKey, "ann")
		if err != nil {
			t.Fatal(err)
		}
		p, err := h.subscribe(t.Context(), boardKey, "ann", first.version)
		if err != nil || nextMessage(t, p) != "" {
			t.Fatalf("a page that is up to date gets a message, or error %v", err)
		}
		p.close()
		s.set("two", nil)
		time.Sleep(time.Second)
		p, err = h.subscribe(t.Context(), boardKey, "ann", first.version)
		if got := nextMessage(t, p); err != nil || !strings.Contains(got, "two") || !strings.HasPrefix(got, "id: ") {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestHub_SlowStreamCatchesUpAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{}
		h, e := runHub(t, s, 10)
		slow, err := h.subscribe(t.Context(), boardKey, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		quick, err := h.subscribe(t.Context(), boardKey, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		nextMessage(t, quick)
		for i := range 40 {
			text := fmt.Sprintf("text %d.", i)
			s.set(text, nil)
			e.sent <- []store.Event{{}}
			time.Sleep(time.Second)
			if got := nextMessage(t, quick); !strings.Contains(got, text) {
				t.Fatalf("the quick stream got %q, want %q", got, text)
			}
		}
		if got := nextMessage(t, slow); !strings.Contains(got, "text 39.") {
			t.Errorf("the slow stream got %q", got)
		}
		if got := nextMessage(t, slow); got != "" {
			t.Errorf("the slow stream then got %q", got)
		}
	})
}

func TestHub_SendsStaleAndFreshOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{text: "one"}
		h, _ := runHub(t, s, 10)
		p, err := h.subscribe(t.Context(), boardKey, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		nextMessage(t, p)
		s.set("one", errors.New("no database"))
		time.Sleep(10 * time.Second)
		if got := nextMessage(t, p); !strings.HasPrefix(got, "event: stale\n") || nextMessage(t, p) != "" {
			t.Errorf("got %q, want one event stale", got)
		}
		if _, err := h.read(t.Context(), boardKey, "ann"); err == nil {
			t.Error("a new page shows outdated content")
		}
		s.set("one", nil)
		time.Sleep(10 * time.Second)
		if got := nextMessage(t, p); !strings.HasPrefix(got, "event: fresh\n") {
			t.Errorf("got %q", got)
		}
	})
}

func TestHub_ReadsSlowViewsLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{takes: time.Second}
		h, e := runHub(t, s, 10)
		if _, err := h.subscribe(t.Context(), boardKey, "ann", ""); err != nil {
			t.Fatal(err)
		}
		for range 600 {
			e.sent <- []store.Event{{}}
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.loads.Load(); n < 4 || n > 8 {
			t.Errorf("the view was read %d times in a minute", n)
		}
	})
}

func TestHub_RefusesStreamsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := runHub(t, &fakePage{}, 1)
		p, err := h.subscribe(t.Context(), boardKey, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.subscribe(t.Context(), boardKey, "ann", ""); !errors.Is(err, errTooManyPages) {
			t.Errorf("error %v", err)
		}
		p.close()
		if _, err := h.subscribe(t.Context(), boardKey, "ann", ""); err != nil {
			t.Error(err)
		}
	})
}

func TestViewKey_IgnoresEventsOfOtherVideos(t *testing.T) {
	t.Parallel()
	mine, theirs := store.ID{1}, store.ID{2}
	k := viewKey{page: "video", query: "id=" + mine.String()}
	if !k.isAffectedBy(store.Event{Task: mine}) || k.isAffectedBy(store.Event{Task: theirs}) ||
		!k.isAffectedBy(store.Event{Type: store.WorkerLost}) {
		t.Error("the wrong events affect the view")
	}
}
