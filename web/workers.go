package web

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

// workerBody is a worker as JSON.
type workerBody struct {
	ID           store.ID        `json:"worker_id"`
	Name         string          `json:"name"`
	Kind         string          `json:"kind"` // local or remote
	Principal    string          `json:"principal,omitempty"`
	Host         string          `json:"host"`
	PID          int             `json:"pid"`
	Version      string          `json:"version"`
	Capabilities json.RawMessage `json:"capabilities"`
	Metadata     json.RawMessage `json:"metadata"`
	State        string          `json:"state"`
	Connected    bool            `json:"connected"`
	StartedAt    time.Time       `json:"started_at"`
	HeartbeatAge float64         `json:"heartbeat_age_s"`
	Lease        float64         `json:"lease_s"`
	DrainAt      *time.Time      `json:"drain_at,omitempty"`
	StoppedAt    *time.Time      `json:"stopped_at,omitempty"`
	LostAt       *time.Time      `json:"lost_at,omitempty"`
	Running      []store.Running `json:"running"`
}

func newWorkerBody(w store.Worker) workerBody {
	return workerBody{
		ID: w.ID, Name: w.Name, Kind: w.Kind(), Principal: w.Principal, Host: w.Host, PID: w.PID, Version: w.Version,
		Capabilities: w.Capabilities, Metadata: w.Metadata,
		State: w.State(), Connected: w.Connected, StartedAt: w.StartedAt,
		HeartbeatAge: w.HeartbeatAge.Seconds(), Lease: w.Lease.Seconds(),
		DrainAt: w.DrainAt, StoppedAt: w.StoppedAt, LostAt: w.LostAt, Running: append([]store.Running{}, w.Running...),
	}
}

// listWorkers lists all live workers and, with all=true, a page of those that stopped or were lost.
func (s *Server) listWorkers(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	p := parsedQuery(r)
	all, after, limit := p.flag("all"), p.id("after"), p.limit()
	switch {
	case p.err != nil:
		return jsonResponse{}, p.err
	case !all && (p.text("after") != "" || p.text("limit") != ""):
		return jsonResponse{}, problem.New(problem.InvalidRequest,
			"after and limit require all=true: live workers are not listed by pages")
	}
	var workers, stopped []store.Worker
	var err error
	if after.IsZero() {
		workers, err = s.opts.Reads.Workers(r.Context(), false)
	}
	if err == nil && all {
		stopped, err = s.opts.Reads.StoppedWorkers(r.Context(), after, limit+1)
	}
	if err != nil {
		return jsonResponse{}, err
	}
	stopped, next := cutPage(stopped, limit, func(w store.Worker) string { return w.ID.String() })
	bodies := []workerBody{}
	for _, w := range append(workers, stopped...) {
		bodies = append(bodies, newWorkerBody(w))
	}
	return pageResponse(r, "workers", bodies, next)
}

func (s *Server) drainWorker(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return noContentResponse(s.actions().DrainWorker(r.Context(), pathID(r)))
}
