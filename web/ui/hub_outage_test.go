package ui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A page that reconnects during an outage may show any version.
func TestHub_SendsMissedChangesAfterAReconnectDuringAnOutage(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"a view with other pages": true, "a view that was not read": false} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakePage{text: "one"}
			h, _ := runHub(t, s, 10)
			first, err := h.read(t.Context(), boardKey, "ann")
			if err != nil {
				t.Fatal(err)
			}
			s.set("two", nil)
			if known {
				if _, err := h.subscribe(t.Context(), boardKey, "bob", first.version); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			s.set("", errors.New("no database"))
			time.Sleep(10 * time.Second)
			p, err := h.subscribe(t.Context(), boardKey, "ann", first.version)
			if err != nil {
				t.Fatal(err)
			}
			if got := nextMessage(t, p); !strings.HasPrefix(got, "event: stale\n") {
				t.Errorf("%s: the first message is %q", name, got)
			}
			// The screen has not changed for the view, but for the page.
			s.set("two", nil)
			time.Sleep(time.Minute)
			var got string
			for text := nextMessage(t, p); text != ""; text = nextMessage(t, p) {
				got += text
			}
			if !strings.Contains(got, "event: fresh\n") || !strings.Contains(got, "<p>two</p>") {
				t.Errorf("%s: after the outage the page gets %q", name, got)
			}
		})
	}
}

func TestHub_TellsASlowStreamWhetherItIsStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{text: "one"}
		h, _ := runHub(t, s, 10)
		p, err := h.subscribe(t.Context(), boardKey, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 32 {
			s.set(fmt.Sprint(i), nil)
			time.Sleep(5 * time.Second)
		}
		s.set("", errors.New("no database"))
		time.Sleep(10 * time.Second)
		if got := nextMessage(t, p); got != "event: stale\ndata: \n\n" {
			t.Errorf("during the outage the page gets %q", got)
		}
		s.set("one", nil)
		time.Sleep(10 * time.Second)
		for i := range 32 {
			s.set(fmt.Sprint(i), nil)
			time.Sleep(5 * time.Second)
		}
		if got := nextMessage(t, p); !strings.HasPrefix(got, "event: fresh\ndata: \n\n") || !strings.Contains(got, "31") {
			t.Errorf("after the outage the page gets %q", got)
		}
	})
}

func TestHub_SlowViewDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		h, _ := runHubWith(t, func(_ context.Context, k viewKey) (screen, error) {
			if k.query != "" {
				time.Sleep(5 * time.Second)
				return screen{}, context.DeadlineExceeded
			}
			return newScreen("", []fragment{{"a", "", fmt.Sprintf("<p>%d</p>", n.Load())}}), nil
		}, 20)
		p, err := h.subscribe(t.Context(), boardKey, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if _, err := h.subscribe(t.Context(), viewKey{page: "board", query: fmt.Sprint(i)}, "bob", ""); err != nil {
				t.Fatal(err)
			}
		}
		for nextMessage(t, p) != "" {
		}
		for i := range 60 {
			n.Store(int32(i + 1))
			time.Sleep(pollInterval + time.Second)
			if got := nextMessage(t, p); !strings.Contains(got, fmt.Sprintf("<p>%d</p>", i+1)) {
				t.Fatalf("in round %d the quick page gets %q", i, got)
			}
		}
	})
}

func TestHub_ReportsALateView(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub((&fakePage{}).load, func(viewKey, error) {}, 10) // not running
		p, err := h.subscribe(t.Context(), boardKey, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, late := p.readTime(); late {
			t.Error("the view is late at once")
		}
		then := time.Now()
		time.Sleep(time.Minute)
		if read, late := p.readTime(); !late || !read.Equal(then) {
			t.Errorf("read at %s, late: %t", read, late)
		}
	})
}

func TestHub_AllWaitingCallersGetTheErrorOfARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{err: errors.New("no database"), takes: readTimeout}
		h, _ := runHub(t, s, 10)
		errs := make(chan error)
		start := time.Now()
		for range 10 {
			go func() {
				_, err := h.read(t.Context(), boardKey, "ann")
				errs <- err
			}()
		}
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.read(impatient, boardKey, "ann"); err == nil || time.Since(start) > 2*time.Second {
			t.Errorf("the caller with a deadline gets %v after %s", err, time.Since(start))
		}
		for range 10 {
			if err := <-errs; err == nil {
				t.Error("the read did not fail")
			}
		}
		if d := time.Since(start); d > readTimeout+time.Second {
			t.Errorf("the last caller waited for %s", d)
		}
	})
}

func TestHub_LimitsTheViewsOfAViewer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakePage{text: "one"}
		h, _ := runHub(t, s, 1000)
		nth := func(i int) viewKey { return viewKey{page: "board", query: fmt.Sprint(i)} }
		for i := range maxViewsPerViewer {
			if _, err := h.subscribe(t.Context(), nth(i), "mallory", ""); err != nil {
				t.Fatal(err)
			}
		}
		before := s.loads.Load()
		_, err := h.subscribe(t.Context(), nth(maxViewsPerViewer), "mallory", "")
		if !errors.Is(err, errTooManyPages) || s.loads.Load() != before {
			t.Errorf("a stream beyond the limit: error %v", err)
		}
		if _, err := h.read(t.Context(), nth(maxViewsPerViewer), "mallory"); err != nil {
			t.Errorf("a page beyond the limit: %v", err)
		}
		for _, k := range []viewKey{nth(0), nth(maxViewsPerViewer)} {
			if _, err := h.subscribe(t.Context(), k, "ann", ""); err != nil {
				t.Errorf("the stream of another viewer: %v", err)
			}
		}
	})
}
