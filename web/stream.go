package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/store"
)

const (
	eventStream = "text/event-stream"
	// returnIn is when a browser whose stream has ended is to come back.
	returnIn = 2 * time.Second
	// askAgain is how often it is looked whether the principal of what stays open
	// still is one.
	askAgain = time.Minute
	// sendAt is how much of a stream is kept until it is sent: who comes back after
	// a bad night is told of many errors, and so are others.
	sendAt = 64 << 10
)

// streams counts those that are open.
type streams struct {
	most, each int

	mu   sync.Mutex
	open int
	by   map[string]int // by principal
}

// enter counts one more, until leave.
func (s *streams) enter(who string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open >= s.most:
		return &problem{kindStreams, fmt.Sprintf("all %d streams are open", s.most), retryAfter}
	case s.by[who] >= s.each:
		return &problem{kindStreams, fmt.Sprintf("%s has %d streams open", who, s.each), retryAfter}
	}
	s.open++
	s.by[who]++
	return nil
}

func (s *streams) leave(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.by[who]--; s.by[who] == 0 {
		delete(s.by, who)
	}
}

func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// stream is one that is open. Its writes have a time each, as all have; after one
// that failed nothing more is written.
type stream struct {
	s   *Server
	w   http.ResponseWriter
	buf bytes.Buffer
	who access.Principal
	// asked is when it was last asked whether the principal still is one.
	asked time.Time
	live  context.Context // until the client is gone or the server drains
	close func()          // gives up its place
}

// errDraining: the server ends.
var errDraining = &problem{kindUnavailable, "this server is about to end", returnIn}

// withStream starts a stream, if the limits allow one more, and runs write until it returns. The context of
// write is cancelled when the client disconnects or the server drains.
func (s *Server) withStream(w http.ResponseWriter, r *http.Request, write func(ctx context.Context, st *stream) error) error {
	st, err := s.newStream(w, r)
	if err != nil {
		return err
	}
	defer st.close()
	if r.Method == http.MethodHead {
		return nil
	}
	return write(st.live, st)
}

// newStream begins an answer, if there is room for it.
func (s *Server) newStream(w http.ResponseWriter, r *http.Request) (*stream, error) {
	st := &stream{s: s, w: w, who: access.From(r.Context()), asked: time.Now()}
	if s.live.Err() != nil {
		return nil, errDraining
	}
	if err := s.streams.enter(st.who.Name); err != nil {
		return nil, err
	}
	var cancel context.CancelFunc
	st.live, cancel = context.WithCancel(r.Context())
	stop := context.AfterFunc(s.live, cancel)
	st.close = func() {
		stop()
		cancel()
		s.streams.leave(st.who.Name)
	}
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // else nginx would keep it to itself
	fmt.Fprintf(&st.buf, "retry: %d\n\n", returnIn.Milliseconds())
	return st, nil
}

// put writes an event to what is sent with the next send.
func (st *stream) put(id int64, name string, data any) error {
	text, err := frame(id, name, data)
	st.buf.Write(text)
	return err
}

// send sends what was put.
func (st *stream) send() error {
	_, err := st.w.Write(st.buf.Bytes())
	st.buf = bytes.Buffer{} // a stream is idle most of the time, and there may be many
	if err != nil {
		return err
	}
	return http.NewResponseController(st.w).Flush()
}

// follow sends events as they come, until each says that it was the last, or
// there are no more.
func (st *stream) follow(ctx context.Context, sub Subscription, last func(context.Context, []store.Event) (bool, error)) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, st.s.o.Ping)
		events, err := sub.Next(waiting)
		timely := waiting.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			if err = st.sendEvents(events); err != nil {
				return err
			}
			if done, err := last(ctx, events); done || err != nil {
				return err
			}
		case timely && errors.Is(err, context.DeadlineExceeded):
			st.buf.WriteString(": ping\n\n")
			if err := st.send(); err != nil {
				return err
			}
		case errors.Is(err, eventfeed.ErrSlow), errors.Is(err, store.ErrEventsGone):
			return st.resync(ctx)
		default:
			return nil // the client comes back, and goes on from where it was
		}
		if !st.welcome() {
			return nil
		}
	}
}

func (st *stream) sendEvents(events []store.Event) error {
	if len(events) == 0 {
		return nil
	}
	for _, e := range events {
		text, err := st.s.frames.of(e)
		if err != nil {
			return err
		}
		st.buf.Write(text)
		if st.buf.Len() >= sendAt {
			if err := st.send(); err != nil {
				return err
			}
		}
	}
	return st.send()
}

// resync tells the client that it has missed something, and to look at how things
// are before it goes on from here.
func (st *stream) resync(ctx context.Context) error {
	here, err := st.s.o.Store.EventWatermark(ctx)
	if err != nil {
		return err
	}
	if err := st.put(here, "resync", position{here}); err != nil {
		return err
	}
	return st.send()
}

// position is where a stream goes on.
type position struct {
	After int64 `json:"after"`
}

// welcome reports whether the principal still is one.
func (st *stream) welcome() bool {
	if time.Since(st.asked) < askAgain {
		return true
	}
	st.asked = time.Now()
	return st.s.isStill(st.live)
}

// isStill reports whether the principal of a request would still be let in. Where
// nobody can be asked, it would.
func (s *Server) isStill(ctx context.Context) bool {
	err := s.o.Guard.Still(ctx)
	return !errors.Is(err, access.ErrUnknown) && !errors.Is(err, access.ErrWrong)
}

// finishStream answers with what went wrong, unless the stream has begun: then
// nobody can be told, and the client comes back.
func (s *Server) finishStream(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil || r.Context().Err() != nil {
		return
	}
	if rec, ok := w.(*response); !ok || rec.status == 0 {
		h := w.Header()
		h.Del("X-Accel-Buffering")
		s.fail(w, r, err)
	}
}

// choice is which events a client wants.
type choice struct {
	after int64
	given bool // whether it says after
	lost  bool // there is no going on from there
	keep  func(store.Event) bool
}

func (s *Server) chosen(r *http.Request) (c choice, err error) {
	p := query(r, "after", "types")
	c.after, c.given = startOf(r, &p)
	types, err := eventTypes(p.text("types"))
	if err = errors.Join(p.err, err); err != nil {
		return c, err
	}
	c.keep = func(e store.Event) bool { return types == nil || types[e.Type] }
	ctx, cancel := context.WithTimeout(r.Context(), answerIn)
	defer cancel()
	if c.given {
		c.lost, err = s.lost(ctx, c.after)
	} else {
		c.after, err = s.o.Store.EventWatermark(ctx)
	}
	return c, err
}

// lost reports whether nobody can tell what came after a place: events are deleted, or
// the place is none of this database, which was made anew or brought back from a backup
// since it was told. Where that is so a subscription would wait until it has come so far.
func (s *Server) lost(ctx context.Context, after int64) (bool, error) {
	_, err := s.o.Store.Events(ctx, store.EventQuery{After: after, Limit: 1})
	if errors.Is(err, store.ErrEventsGone) {
		return true, nil
	}
	return false, err
}

// streamEvents follows all events, or some types of them.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) {
	c, err := s.chosen(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.finishStream(w, r, s.withStream(w, r, func(ctx context.Context, st *stream) error {
		if err := st.open(c.after); err != nil {
			return err
		}
		if c.lost {
			return st.resync(ctx)
		}
		sub := s.o.Subscribe(c.after, c.keep)
		defer sub.Close()
		return st.follow(ctx, sub, endless)
	}))
}

// endless: no events are the last.
func endless(context.Context, []store.Event) (bool, error) { return false, nil }

// open begins with the stream's place, so that nothing is missed by whoever comes
// back before anything has happened.
func (st *stream) open(after int64) error {
	if err := st.put(after, "open", position{after}); err != nil {
		return err
	}
	return st.send()
}
