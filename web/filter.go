package web

import (
	"slices"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

// filter selects tasks. It comes as query parameters or as JSON.
type filter struct {
	Status      string `json:"status"`
	Stage       string `json:"stage"`
	StageStatus string `json:"stage_status"`
	UserID      string `json:"user_id"`
	RequestID   string `json:"request_id"`
	Source      string `json:"source"`
	Error       string `json:"error"`
}

var filterNames = []string{"status", "stage", "stage_status", "user_id", "request_id", "source", "error"}

func (p *queryParameters) filter() filter {
	return filter{
		Status: p.text("status"), Stage: p.text("stage"), StageStatus: p.text("stage_status"), UserID: p.text("user_id"),
		RequestID: p.text("request_id"), Source: p.text("source"), Error: p.text("error"),
	}
}

var statuses = []store.Status{
	store.StatusPending, store.StatusInProgress, store.StatusCompleted, store.StatusFailed, store.StatusDead,
	store.StatusCancelled,
	store.StatusScheduled, // only of whole tasks
	store.StatusDivided,   // only of stages
}

func (f filter) toStoreFilter() (store.Filter, error) {
	for _, status := range []string{f.Status, f.StageStatus} {
		if status != "" && !slices.Contains(statuses, store.Status(status)) {
			return store.Filter{}, problem.New(problem.InvalidRequest, "unknown status %q", status)
		}
	}
	if f.StageStatus == string(store.StatusScheduled) {
		return store.Filter{}, problem.New(problem.InvalidRequest,
			"stage_status cannot be %q: only a whole task is scheduled", f.StageStatus)
	}
	if f.Status == string(store.StatusDivided) {
		return store.Filter{}, problem.New(problem.InvalidRequest, "status cannot be %q: only a stage is divided", f.Status)
	}
	if (f.Stage == "") != (f.StageStatus == "") {
		return store.Filter{}, problem.New(problem.InvalidRequest, "stage and stage_status must be given together")
	}
	for i, text := range []string{f.Stage, f.UserID, f.RequestID, f.Source, f.Error} {
		if err := checkText([]string{"stage", "user_id", "request_id", "source", "error"}[i], text); err != nil {
			return store.Filter{}, err
		}
	}
	return store.Filter{
		Status: store.Status(f.Status), Stage: f.Stage, StageStatus: store.Status(f.StageStatus),
		UserID: f.UserID, RequestID: f.RequestID, Source: f.Source, Error: f.Error,
	}, nil
}
