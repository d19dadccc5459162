package daemon

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/metrics"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/standby"
	"github.com/cuelight/cuelight/store"
)

// openLists prepares what clients read from: the standby, if there is one and the daemon listens.
func (s *services) openLists() {
	d := s.d
	s.lists = d.DB.Reads.Store
	if d.DB.Reads.Standby == nil || d.HTTP.Listen == "" {
		return
	}
	s.standby = standby.New(standby.Options{
		Primary: d.DB.Reads.Pool, Position: d.DB.Reads.Reserved, Standby: d.DB.Reads.Standby, MaxLag: d.ReadMaxLag,
		Explain: dbconn.Reason,
		OnChange: func(reason string) {
			if reason == "" {
				d.Log.Info("clients read from the standby", zap.String("database", d.DB.StandbyName))
			} else {
				d.Log.Warn("clients read from the primary, not from the standby",
					zap.String("database", d.DB.StandbyName), zap.String("reason", reason))
			}
		},
	})
	s.lists = store.New(s.standby, d.DB.Store.Graph())
}

// metricsDB returns what the metrics of the database are read from.
func (s *services) metricsDB() metrics.DB {
	if s.standby != nil {
		return s.standby
	}
	return s.d.DB.Reads.Pool
}

// wrap wraps the handler of requests with a principal. The handler of the standby copies requests, so it is outside.
func (s *services) wrap(h http.Handler) http.Handler {
	h = s.d.tracer.Handler(h)
	if s.standby != nil {
		h = s.standby.Handler(h)
	}
	return h
}

// readFrom returns a function that describes where pages are read from; nil if that is always the database.
func (s *services) readFrom() func() string {
	if s.standby == nil {
		return nil
	}
	return func() string {
		st := s.standby.Status()
		if st.Reason != "" {
			return "Read from the primary, not from the standby: " + st.Reason
		}
		if st.Lag < time.Second {
			return "Read from a standby, less than a second behind"
		}
		return "Read from a standby, " + console.Duration(st.Lag) + " behind"
	}
}

// requireReplay makes later reads show what is committed now: an action of the dashboard, or an event that is delivered.
func (s *services) requireReplay(ctx context.Context) {
	if s.standby != nil {
		s.standby.Require(ctx)
	}
}

// eventReader reads events from the primary. A client that gets an event can then read its effects.
type eventReader struct {
	playback.Store
	standby *standby.Router // may be nil
}

// Events implements eventfeed.EventReader.
func (r eventReader) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	events, err := r.Store.Events(ctx, q)
	if r.standby != nil && len(events) > 0 {
		r.standby.Require(ctx)
	}
	return events, err
}
