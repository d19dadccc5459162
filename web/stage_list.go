package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// stageStatsMaxAge is how old the counts of a response may be.
const stageStatsMaxAge = time.Second

// stagesBody is the state of a pipeline as JSON.
type stagesBody struct {
	Pipeline  string      `json:"pipeline"`
	Running   int         `json:"running"`
	Ready     int         `json:"ready"`
	Scheduled int         `json:"scheduled"`
	Retrying  int         `json:"retrying"`
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

func (s *Server) listStages(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return okResponse(s.stageStats.Get(r.Context(), s.readStages))
}

func (s *Server) readStages(ctx context.Context) (stagesBody, error) {
	g := s.opts.Reads.Graph()
	stats, err := report.New(s.opts.Reads.DB(), g).Stats(ctx)
	if err != nil {
		return stagesBody{}, err
	}
	pauses, err := s.opts.Reads.Pauses(ctx)
	if err != nil {
		return stagesBody{}, err
	}
	isPaused := func(stage string) bool { // on all hosts
		return slices.ContainsFunc(pauses, func(p store.Pause) bool {
			return p.Host == "" && (p.Stage == "" || p.Stage == stage)
		})
	}
	body := stagesBody{
		Pipeline: g.Name(), Running: stats.Running, Ready: stats.Ready, Scheduled: stats.Scheduled,
		Retrying: stats.Retrying, Dead: stats.Dead, Stages: make([]stageBody, len(stats.Stages)),
	}
	for i, st := range stats.Stages {
		body.Stages[i] = stageBody{
			Stage: st.Stage, Needs: []string{}, Running: st.Running, Ready: st.Ready,
			OldestReady: st.OldestReady.Seconds(), Paused: isPaused(st.Stage),
		}
	}
	for i, name := range g.Stages() {
		for _, j := range g.Feeds(i) {
			body.Stages[j].Needs = append(body.Stages[j].Needs, name)
		}
	}
	return body, nil
}
