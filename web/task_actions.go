package web

import (
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// retryTimeout is how long one request starts further batches of tasks to retry, well within handlerTimeout. The next
// request continues.
const retryTimeout = 15 * time.Second

// changeTask changes one task and returns it.
func (s *Server) changeTask(r *http.Request, change func(id store.ID) error) (jsonResponse, error) {
	id := pathID(r)
	if err := change(id); err != nil {
		return jsonResponse{}, err
	}
	task, err := s.opts.Store.Get(r.Context(), id)
	if err != nil {
		return jsonResponse{}, err
	}
	changed, err := s.taskBodies(r, task)
	return okResponse(changed[0], err)
}

func (s *Server) retryTask(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in ops.RetryOptions
	if err := decode(w, r, maxBody, true, &in); err != nil {
		return jsonResponse{}, err
	}
	return s.changeTask(r, func(id store.ID) error { return s.actions().Retry(r.Context(), id, in) })
}

// updateTask changes what viewers see of a video.
func (s *Server) updateTask(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in video.Edit
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return jsonResponse{}, err
	}
	return s.changeTask(r, func(id store.ID) error { return s.actions().Edit(r.Context(), id, in) })
}

func (s *Server) cancelTask(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.changeTask(r, func(id store.ID) error { return s.actions().Cancel(r.Context(), id) })
}

// retryTasks retries all tasks that a filter matches; only dead tasks if the filter has neither status nor stage.
func (s *Server) retryTasks(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		Filter filter `json:"filter"`
		From   string `json:"from"`
		DryRun bool   `json:"dry_run"`
	}
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return jsonResponse{}, err
	}
	if in.Filter.Status == "" && in.Filter.Stage == "" {
		in.Filter.Status = string(store.StatusDead)
	}
	f, err := in.Filter.toStoreFilter()
	if err != nil {
		return jsonResponse{}, err
	}
	var result store.RetryAllResult
	if in.DryRun {
		result.Matched, err = s.opts.Store.CountRetries(r.Context(), f, in.From)
		result.Remaining = result.Matched
	} else {
		in.Filter.Source = redact.Filter(in.Filter.Source)
		result, err = s.actions().RetryAll(r.Context(), f, in.From, in.Filter, store.RetryAllOptions{
			Until: time.Now().Add(retryTimeout),
		})
	}
	return okResponse(struct {
		Matched   int  `json:"matched"`
		Retried   int  `json:"retried"`
		Remaining int  `json:"remaining"`
		DryRun    bool `json:"dry_run"`
	}{result.Matched, result.Retried, result.Remaining, in.DryRun}, err)
}

// overrideTask submits a task that replaces one or more others.
func (s *Server) overrideTask(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		submission
		OtherTasks []store.ID `json:"other_task_ids"`
	}
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return jsonResponse{}, err
	}
	subs, err := s.checkSubmissions(r, []submission{in.submission})
	if err != nil {
		return jsonResponse{}, err
	}
	replaced := append([]store.ID{pathID(r)}, in.OtherTasks...)
	receipt, err := s.actions().Override(r.Context(), replaced, subs[0])
	if err != nil {
		return jsonResponse{}, err
	}
	return s.receiptsResponse([]store.Receipt{receipt}, false), nil
}
