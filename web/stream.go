package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

// principalCheckInterval is how often the server checks that the principal of an open stream or page is valid.
const principalCheckInterval = time.Minute

var errShuttingDown = problem.New(problem.Unavailable, "the server is shutting down; try again").After(reconnectDelay)

// stream is an open stream of events.
type stream struct {
	*sseStream
	server    *Server
	principal string
	addresses playback.Addresses // of the videos of completed tasks
	ctx       context.Context    // done when the client disconnects; while it runs, also when the server drains
	checkedAt time.Time          // when the principal was checked

	sub    Subscription                               // nil before subscribe
	handle func([]store.Event) (last bool, err error) // nil before follow
}

// serveStream opens a stream, if the limits allow one more, and runs start, which sends what is there and may call
// [stream.follow]. It responds with an error only if the stream has not started: later the client reconnects.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, start func(st *stream) error) {
	rec := w.(*responseWriter) // of observeRequests
	err := s.startStream(rec, r, start)
	if err != nil && r.Context().Err() == nil && rec.status == 0 {
		w.Header().Del("X-Accel-Buffering")
		s.writeError(w, r, err)
	}
}

func (s *Server) startStream(rec *responseWriter, r *http.Request, start func(st *stream) error) error {
	if s.streamContext.Err() != nil {
		return errShuttingDown
	}
	st := &stream{
		server: s, principal: access.PrincipalOf(r.Context()).Name, addresses: s.addresses(r), ctx: r.Context(), checkedAt: time.Now(),
	}
	if err := s.streamLimit.acquire(st.principal); err != nil {
		return err
	}
	defer st.close()
	st.sseStream = newSSEStream(rec)
	if r.Method == http.MethodHead {
		return nil
	}
	err := start(st)
	if err == nil && st.handle != nil {
		st.run()
	}
	return err
}

// close frees what the stream holds.
func (st *stream) close() {
	if st.sub != nil {
		st.sub.Close()
	}
	st.server.streamLimit.release(st.principal)
}

// subscribe makes the stream one of the events after an id for which keep returns true.
func (st *stream) subscribe(after int64, keep func(store.Event) bool) {
	st.sub = st.server.opts.Subscribe(after, keep)
}

// follow makes the stream go on: handle is called without events, and then with those of the subscription as they
// happen, until it reports that the stream is complete.
func (st *stream) follow(handle func([]store.Event) (last bool, err error)) { st.handle = handle }

// run sends events until the stream is complete or ends early: the client then reconnects and continues after its
// last event.
func (st *stream) run() {
	ctx, cancel := context.WithCancel(st.ctx)
	defer cancel()
	defer context.AfterFunc(st.server.streamContext, cancel)()
	st.ctx = ctx
	for goesOn := st.send(nil); goesOn && st.sendNext(); {
	}
}

// send sends events, and reports whether the stream goes on. Most errors are the client's.
func (st *stream) send(events []store.Event) bool {
	last, err := st.handle(events)
	if errors.Is(err, errEncode) {
		st.server.opts.OnError("stream", err)
	}
	return !last && err == nil
}

// sendNext waits for events and sends them, or after the ping interval a ping. It reports whether the stream goes on.
func (st *stream) sendNext() bool {
	waiting, cancel := context.WithTimeout(st.ctx, st.server.opts.PingInterval)
	events, err := st.sub.Next(waiting)
	timedOut := waiting.Err() != nil
	cancel()
	switch {
	case st.ctx.Err() != nil:
		return false
	case err == nil:
		if !st.send(events) {
			return false
		}
	case timedOut && errors.Is(err, context.DeadlineExceeded):
		if st.Ping() != nil {
			return false
		}
	case errors.Is(err, eventfeed.ErrSlow), errors.Is(err, store.ErrEventsGone):
		_ = st.resync() // the stream ends anyway
		return false
	default:
		return false
	}
	return st.isPrincipalValid()
}

func (st *stream) sendEvents(events []store.Event) error {
	events, err := st.addresses.DescribeEvents(st.ctx, st.server.opts.Store, events)
	if err != nil {
		return err
	}
	return st.SendEvents(events, &st.server.eventCache)
}

// streamPosition is the data of the events open and resync: the id to continue after.
type streamPosition struct {
	After int64 `json:"after"`
}

// resync tells the client that it missed events: it has to read the state of the tasks before it continues.
func (st *stream) resync() error {
	watermark, err := st.server.opts.Store.EventWatermark(st.ctx)
	if err != nil {
		return err
	}
	return st.sendPosition("resync", watermark)
}

func (st *stream) sendPosition(name string, after int64) error {
	if err := st.Add(after, name, streamPosition{after}); err != nil {
		return err
	}
	return st.Send()
}

func (st *stream) isPrincipalValid() bool {
	if time.Since(st.checkedAt) < principalCheckInterval {
		return true
	}
	st.checkedAt = time.Now()
	return st.server.isPrincipalValid(st.ctx)
}

// isPrincipalValid reports whether the guard would still accept the principal of a request. If the database
// cannot be asked, it does.
func (s *Server) isPrincipalValid(ctx context.Context) bool {
	err := s.opts.Guard.Revalidate(ctx)
	return !errors.Is(err, access.ErrNoCredentials) && !errors.Is(err, access.ErrInvalidCredentials)
}
