package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/sse"
)

// principalCheckInterval is how often the server checks that the principal of an open stream or page is valid.
const principalCheckInterval = time.Minute

var errShuttingDown = problem.New(problem.Unavailable, "the server is shutting down; try again").After(sse.ReconnectDelay)

// stream is an open stream of events.
type stream struct {
	*sse.Stream
	server    *Server
	ctx       context.Context // done when the client disconnects or the server drains
	checkedAt time.Time       // when the principal was checked
}

// serveStream opens a stream, if the limits allow one more, and runs write until it returns. It responds with an
// error only if the stream has not started: later the client reconnects.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, write func(st *stream) error) {
	err := s.runStream(w, r, write)
	if err == nil || r.Context().Err() != nil {
		return
	}
	if rec, ok := w.(*responseWriter); !ok || rec.status == 0 {
		w.Header().Del("X-Accel-Buffering")
		s.writeError(w, r, err)
	}
}

func (s *Server) runStream(w http.ResponseWriter, r *http.Request, write func(st *stream) error) error {
	if s.streamContext.Err() != nil {
		return errShuttingDown
	}
	principal := access.From(r.Context()).Name
	if err := s.streamLimit.acquire(principal); err != nil {
		return err
	}
	defer s.streamLimit.release(principal)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.streamContext, cancel)()
	st := &stream{Stream: sse.NewStream(w), server: s, ctx: ctx, checkedAt: time.Now()}
	if r.Method == http.MethodHead {
		return nil
	}
	return write(st)
}

// follow sends events as they happen, until isLast reports that the stream is complete.
func (st *stream) follow(sub Subscription, isLast func([]store.Event) (bool, error)) error {
	for {
		waiting, cancel := context.WithTimeout(st.ctx, st.server.opts.PingInterval)
		events, err := sub.Next(waiting)
		timedOut := waiting.Err() != nil
		cancel()
		switch {
		case st.ctx.Err() != nil:
			return st.ctx.Err()
		case err == nil:
			if err := st.sendEvents(events); err != nil {
				return err
			}
			if done, err := isLast(events); done || err != nil {
				return err
			}
		case timedOut && errors.Is(err, context.DeadlineExceeded):
			if err := st.Ping(); err != nil {
				return err
			}
		case errors.Is(err, eventfeed.ErrSlow), errors.Is(err, store.ErrEventsGone):
			return st.resync()
		default:
			return nil // the client reconnects and continues from its last event
		}
		if !st.isPrincipalValid() {
			return nil
		}
	}
}

func (st *stream) sendEvents(events []store.Event) error {
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
	err := s.opts.Guard.Still(ctx)
	return !errors.Is(err, access.ErrUnknown) && !errors.Is(err, access.ErrWrong)
}
