package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// workerBody is a worker as JSON.
type workerBody struct {
	ID           store.ID        `json:"worker_id"`
	Host         string          `json:"host"`
	PID          int             `json:"pid"`
	Version      string          `json:"version"`
	Capabilities json.RawMessage `json:"capabilities"`
	State        string          `json:"state"`
	Connected    bool            `json:"connected"`
	StartedAt    time.Time       `json:"started_at"`
	BeatAge      float64         `json:"heartbeat_age_s"`
	Lease        float64         `json:"lease_s"`
	DrainAt      *time.Time      `json:"drain_at,omitempty"`
	StoppedAt    *time.Time      `json:"stopped_at,omitempty"`
	LostAt       *time.Time      `json:"lost_at,omitempty"`
	Running      []store.Running `json:"running"`
}

func (s *Server) listWorkers(_ http.ResponseWriter, r *http.Request) (answer, error) {
	p := given(r)
	all, after, limit := p.flag("all"), p.id("after"), p.limit()
	switch {
	case p.err != nil:
		return answer{}, p.err
	case !all && (p.text("after") != "" || p.text("limit") != ""):
		return answer{}, refuse(kindRequest, "after and limit go with all=true: those that work come all at once")
	}
	var workers, gone []store.Worker
	var err error
	if after.IsZero() {
		workers, err = s.o.Store.Workers(r.Context(), false)
	}
	if err == nil && all {
		gone, err = s.o.Store.StoppedWorkers(r.Context(), after, limit+1)
	}
	if err != nil {
		return answer{}, err
	}
	body := struct {
		Workers []workerBody `json:"workers"`
		Next    string       `json:"next,omitempty"`
	}{Workers: []workerBody{}}
	if len(gone) > limit {
		gone = gone[:limit]
		body.Next = s.next(api+"/workers", p, gone[limit-1].ID.String())
	}
	for _, w := range append(workers, gone...) {
		body.Workers = append(body.Workers, workerBody{
			ID: w.ID, Host: w.Host, PID: w.PID, Version: w.Version, Capabilities: w.Capabilities, State: w.State(), Connected: w.Connected,
			StartedAt: w.StartedAt, BeatAge: w.HeartbeatAge.Seconds(), Lease: w.Lease.Seconds(),
			DrainAt: w.DrainAt, StoppedAt: w.StoppedAt, LostAt: w.LostAt, Running: append([]store.Running{}, w.Running...),
		})
	}
	return answer{status: http.StatusOK, body: body, link: body.Next}, nil
}

func (s *Server) drainWorker(w http.ResponseWriter, r *http.Request) (answer, error) {
	id, err := pathID(r)
	if err != nil {
		return answer{}, err
	}
	if err := decode(w, r, bodyMost, true, &struct{}{}); err != nil {
		return answer{}, err
	}
	err = s.o.Store.WithAudit(r.Context(), func(in *store.Store) (store.AuditEntry, error) {
		return entry(r, "drain", id.String(), nil), in.DrainWorker(r.Context(), id)
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}

func (s *Server) pausesBody(ctx context.Context) (answer, error) {
	pauses, err := s.o.Store.Pauses(ctx)
	if err != nil {
		return answer{}, err
	}
	return ok(map[string]any{"pauses": append([]store.Pause{}, pauses...)})
}

func (s *Server) listPauses(_ http.ResponseWriter, r *http.Request) (answer, error) {
	return s.pausesBody(r.Context())
}

// placeOf is what a pause is for, in words for the audit.
func placeOf(p store.Pause) string {
	stage, host := "all stages", "all hosts"
	if p.Stage != "" {
		stage = p.Stage
	}
	if p.Host != "" {
		host = p.Host
	}
	return stage + " on " + host
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in struct {
		Stage string `json:"stage"`
		Host  string `json:"host"`
	}
	if err := decode(w, r, bodyMost, false, &in); err != nil {
		return answer{}, err
	}
	if err := checkText(in.Host); err != nil {
		return answer{}, refuse(kindRequest, "host is %v", err)
	}
	p := store.Pause{Stage: in.Stage, Host: in.Host, By: access.From(r.Context()).Name}
	err := s.o.Store.WithAudit(r.Context(), func(in *store.Store) (store.AuditEntry, error) {
		return entry(r, "pause", placeOf(p), nil), in.Pause(r.Context(), p)
	})
	if err != nil {
		return answer{}, err
	}
	return s.pausesBody(r.Context())
}

func (s *Server) resume(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q := given(r)
	p := store.Pause{Stage: q.text("stage"), Host: q.text("host")}
	err := s.o.Store.WithAudit(r.Context(), func(in *store.Store) (store.AuditEntry, error) {
		there, err := in.Resume(r.Context(), p)
		if err == nil && !there {
			err = fmt.Errorf("%w: there is no pause of %s", errNoPause, placeOf(p))
		}
		return entry(r, "resume", placeOf(p), nil), err
	})
	if err != nil {
		return answer{}, err
	}
	return s.pausesBody(r.Context())
}

// errNoPause is told as what it is.
var errNoPause = &problem{kind: kindNotFound, detail: "there is no such pause"}

// stagesBody is how a pipeline stands.
type stagesBody struct {
	Pipeline  string      `json:"pipeline"`
	Running   int         `json:"running"`
	Ready     int         `json:"ready"`
	Scheduled int         `json:"scheduled"`
	Waiting   int         `json:"waiting"`
	Dead      int         `json:"dead"`
	Stages    []stageBody `json:"stages"`
}

type stageBody struct {
	Stage       string   `json:"stage"`
	Needs       []string `json:"needs"`
	Running     int      `json:"running"`
	Ready       int      `json:"ready"`
	OldestReady float64  `json:"oldest_ready_s"`
	Paused      bool     `json:"paused"`
}

// stripFor is how old what is told of the stages may be.
const stripFor = time.Second

func (s *Server) listStages(_ http.ResponseWriter, r *http.Request) (answer, error) {
	body, err := s.strip.get(r.Context(), stripFor, s.readStages)
	if err != nil {
		return answer{}, err
	}
	return ok(body)
}

func (s *Server) readStages(ctx context.Context) (stagesBody, error) {
	strip, err := report.New(s.o.Store.DB(), s.o.Store.Graph()).Stats(ctx)
	if err != nil {
		return stagesBody{}, err
	}
	pauses, err := s.o.Store.Pauses(ctx)
	if err != nil {
		return stagesBody{}, err
	}
	paused := func(stage string) bool {
		return slices.ContainsFunc(pauses, func(p store.Pause) bool { return p.Host == "" && (p.Stage == "" || p.Stage == stage) })
	}
	g := s.o.Store.Graph()
	needs := make([][]string, len(g.Stages()))
	for i, name := range g.Stages() {
		for _, j := range g.Feeds(i) {
			needs[j] = append(needs[j], name)
		}
	}
	body := stagesBody{
		Pipeline: g.Name(), Running: strip.Running, Ready: strip.Waiting, Scheduled: strip.Scheduled, Waiting: strip.Retrying, Dead: strip.Dead,
		Stages: make([]stageBody, len(strip.Stages)),
	}
	for i, st := range strip.Stages {
		body.Stages[i] = stageBody{
			Stage: st.Stage, Needs: append([]string{}, needs[i]...), Running: st.Running, Ready: st.Ready,
			OldestReady: st.OldestReady.Seconds(), Paused: paused(st.Stage),
		}
	}
	return body, nil
}

func (s *Server) listKeys(_ http.ResponseWriter, r *http.Request) (answer, error) {
	keys, err := s.o.Store.Keys(r.Context())
	if err != nil {
		return answer{}, err
	}
	return ok(map[string]any{"keys": append([]store.Key{}, keys...)})
}

func (s *Server) createKey(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in struct {
		Name  string `json:"name"`
		Scope string `json:"scope"`
	}
	if err := decode(w, r, bodyMost, false, &in); err != nil {
		return answer{}, err
	}
	var body struct {
		store.Key
		Text string `json:"key"`
	}
	err := s.o.Store.WithAudit(r.Context(), func(st *store.Store) (e store.AuditEntry, err error) {
		body.Key, body.Text, err = st.CreateKey(r.Context(), in.Name, in.Scope)
		return entry(r, "key_create", body.Prefix, map[string]any{"name": in.Name, "scope": in.Scope}), err
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: body}, nil
}

func (s *Server) revokeKey(_ http.ResponseWriter, r *http.Request) (answer, error) {
	id, err := pathID(r)
	if err != nil {
		return answer{}, err
	}
	var k store.Key
	err = s.o.Store.WithAudit(r.Context(), func(in *store.Store) (e store.AuditEntry, err error) {
		k, err = in.RevokeKey(r.Context(), id)
		return entry(r, "key_revoke", k.Prefix, map[string]any{"name": strings.ToValidUTF8(k.Name, "")}), err
	})
	if err != nil {
		return answer{}, err
	}
	return ok(k)
}

func (s *Server) listAudit(_ http.ResponseWriter, r *http.Request) (answer, error) {
	p := given(r)
	after, limit := p.place("after"), p.limit()
	if p.err != nil {
		return answer{}, p.err
	}
	entries, err := s.o.Store.Audits(r.Context(), after, limit+1)
	if err != nil {
		return answer{}, err
	}
	body := struct {
		Entries []store.AuditEntry `json:"entries"`
		Next    string             `json:"next,omitempty"`
	}{Entries: append([]store.AuditEntry{}, entries...)}
	if len(entries) > limit {
		body.Entries = entries[:limit]
		body.Next = s.next(api+"/audit", p, fmt.Sprint(entries[limit-1].ID))
	}
	return answer{status: http.StatusOK, body: body, link: body.Next}, nil
}
