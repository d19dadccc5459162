package ui

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

const (
	redrawEvery = 250 * time.Millisecond // at most, what is open
	lookEvery   = 2 * time.Second        // at what no event tells of
	queued      = 16                     // changes that an open page may be behind
)

// pace is how long a view takes to read. What is slow is drawn by a goroutine of its
// own, so that it holds up nothing else.
type pace int

const (
	quick pace = iota
	slow
)

// hub keeps the views that somebody looks at.
type hub struct {
	load    func(context.Context, key) (screen, error)
	told    func(key, error) // of each read, with nil of one that went well
	most    int              // pages that may be open
	stirred [2]chan struct{} // something is to be drawn, by pace
	over    chan struct{}    // closed when nothing will be drawn any more

	came chan struct{} // somebody looks

	mu    sync.Mutex
	views map[key]*view
	open  int
	acted time.Time          // when somebody last did something here
	gone  context.CancelFunc // nobody looks any more; nil while none is told
}

var errCrowded = errors.New("too many open pages")

func (h *hub) init(load func(context.Context, key) (screen, error), told func(key, error), most int) {
	h.load, h.told, h.most = load, told, most
	h.came, h.over = make(chan struct{}, 1), make(chan struct{})
	for of := range h.stirred {
		h.stirred[of] = make(chan struct{}, 1)
	}
	h.views = make(map[key]*view)
}

// ended is closed once run has returned: the streams end with it, so that a server
// that waits for its requests can stop.
func (h *hub) ended() <-chan struct{} { return h.over }

// run draws what is open whenever something happens.
func (h *hub) run(ctx context.Context, subscribe func(keep func(store.Event) bool) Subscription) error {
	defer close(h.over)
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for subscribe != nil && h.crowd(ctx) {
			h.listen(ctx, subscribe)
			pause(ctx, redrawEvery)
		}
	})
	all.Go(func() { h.follow(ctx, slow) })
	h.follow(ctx, quick)
	return nil
}

// follow draws what is of a pace until ctx is done.
func (h *hub) follow(ctx context.Context, of pace) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			h.mark(nil)
		case <-h.stirred[of]:
		}
		begun := time.Now()
		again := h.drawOpen(ctx, of)
		// Half of the time, its connection is somebody else's.
		pause(ctx, max(redrawEvery, time.Since(begun)))
		if again {
			poke(h.stirred[of])
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// drawOpen draws what has changed and is looked at, of a pace; again says that
// something was not to be drawn so soon, or is being read for somebody.
func (h *hub) drawOpen(ctx context.Context, of pace) (again bool) {
	h.mu.Lock()
	var todo []*view
	for _, v := range h.views {
		switch {
		case len(v.pages) == 0 || v.pace() != of || v.current && v.broken == nil:
		case v.reading != nil || v.soon():
			again = true
		default:
			todo = append(todo, v)
		}
	}
	h.forget()
	h.mu.Unlock()
	for _, v := range todo {
		if ctx.Err() != nil {
			return false
		}
		_, _ = h.draw(ctx, v) // its pages are told of the error
	}
	return again
}

// crowd waits until somebody looks.
func (h *hub) crowd(ctx context.Context) bool {
	for ctx.Err() == nil {
		h.mu.Lock()
		open := h.open
		h.mu.Unlock()
		if open > 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-h.came:
		}
	}
	return false
}

// listen marks what events concern, for as long as somebody looks. When it ends, or
// an event was missed, nothing is lost: it is seen in what is drawn.
func (h *hub) listen(ctx context.Context, subscribe func(keep func(store.Event) bool) Subscription) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.mu.Lock()
	if h.open == 0 {
		h.mu.Unlock()
		return
	}
	h.gone = cancel
	h.mu.Unlock()
	sub := subscribe(h.concerned)
	defer sub.Close()
	h.mark(nil)
	h.stir()
	for {
		events, err := sub.Next(ctx)
		if err != nil {
			return
		}
		if h.mark(events) {
			h.stir()
		}
	}
}

// concerned reports whether somebody looks at what an event may change.
func (h *hub) concerned(e store.Event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, v := range h.views {
		if len(v.pages) > 0 && k.concerns(e) {
			return true
		}
	}
	return false
}

func (h *hub) stir() {
	for _, c := range h.stirred {
		poke(c)
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// mark says of the views that events concern, or of all, that they are not current
// any more.
func (h *hub) mark(events []store.Event) (any bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, v := range h.views {
		if len(v.pages) > 0 && (events == nil || slices.ContainsFunc(events, k.concerns)) {
			v.current, any = false, true
		}
	}
	return any
}
