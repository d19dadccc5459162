package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

// storedEvents are events without a database.
type storedEvents struct {
	mu   sync.Mutex
	last int64
	read chan int64 // the positions that were read
}

func (h *storedEvents) add(last int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = last
}

func (h *storedEvents) EventWatermark(context.Context) (int64, error) { return 0, nil }

func (h *storedEvents) Events(ctx context.Context, q store.EventQuery) (events []store.Event, err error) {
	h.mu.Lock()
	for id := q.After + 1; id <= h.last; id++ {
		events = append(events, store.Event{ID: id, Type: store.TaskSubmitted})
	}
	h.mu.Unlock()
	select {
	case h.read <- q.After:
	case <-ctx.Done():
	}
	return events, nil
}

// slowReader accepts a line when the test lets it.
type slowReader struct {
	bytes.Buffer
	asked, let chan struct{}
	end        func()
	lines      int
}

func (w *slowReader) Write(line []byte) (int, error) {
	w.asked <- struct{}{}
	<-w.let
	if w.lines--; w.lines == 0 {
		w.end()
	}
	return w.Buffer.Write(line)
}

// A slow reader gets each event exactly once.
func TestFollowEvents_LosesNothingForASlowReader(t *testing.T) {
	t.Parallel()
	const lines = 10
	ctx, end := context.WithCancel(t.Context())
	defer end()
	h, wakes := &storedEvents{read: make(chan int64)}, notify.NewWakes()
	f := eventfeed.New(eventfeed.Options{Reader: h, Wake: wakes, BufferSize: 2})
	out := &slowReader{asked: make(chan struct{}), let: make(chan struct{}), end: end, lines: lines}
	write := func(e store.Event) error { return json.NewEncoder(out).Encode(e) }
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { _ = f.Run(ctx) })
	all.Go(func() {
		if err := FollowEvents(ctx, f, 0, write); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-h.read // there are no events yet
	h.add(1)
	wakes.Add("events")
	<-h.read
	<-out.asked
	h.add(lines)
	for after := int64(0); after < lines; { // the feed has advanced while the reader has not
		wakes.Add("events")
		after = <-h.read
	}
	all.Go(func() {
		for {
			select {
			case <-h.read:
			case <-out.asked:
			case <-ctx.Done():
				return
			}
		}
	})
	close(out.let)
	<-ctx.Done()
	all.Wait()
	for i, text := range bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
		var e store.Event
		if err := json.Unmarshal(text, &e); err != nil || e.ID != int64(i+1) {
			t.Errorf("line %d is %s (%v)", i+1, text, err)
		}
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != lines {
		t.Errorf("%d lines, want %d", n, lines)
	}
}
