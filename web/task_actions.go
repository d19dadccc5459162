package web

import (
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// retryTimeout is how long one request starts further batches of tasks to retry, well within handlerTimeout. The next
// request continues.
const retryTimeout = 15 * time.Second

// changeTask changes one task, records it in the audit log, and returns the changed task.
func (s *Server) changeTask(
	r *http.Request, action string, detail map[string]any, change func(in *store.Store, id store.ID) error,
) (jsonResponse, error) {
	id, err := pathID(r)
	if err != nil {
		return jsonResponse{}, err
	}
	var task store.Task
	err = s.opts.Store.WithAudit(r.Context(), func(in *store.Store) (store.AuditEntry, error) {
		if err := change(in, id); err != nil {
			return store.AuditEntry{}, err
		}
		task, err = in.Get(r.Context(), id)
		return newAuditEntry(r, action, id.String(), detail), err
	})
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(visibleTask(r.Context(), task))
}

func (s *Server) retryTask(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		From string `json:"from"`
	}
	if err := decode(w, r, maxBody, true, &in); err != nil {
		return jsonResponse{}, err
	}
	detail := map[string]any{}
	if in.From != "" {
		detail["from"] = in.From
	}
	return s.changeTask(r, "retry", detail, func(st *store.Store, id store.ID) error {
		return st.Retry(r.Context(), id, in.From)
	})
}

func (s *Server) cancelTask(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	if err := decode(w, r, maxBody, true, &struct{}{}); err != nil {
		return jsonResponse{}, err
	}
	return s.changeTask(r, "cancel", nil, func(st *store.Store, id store.ID) error {
		return st.Cancel(r.Context(), id)
	})
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
		result, err = s.opts.Store.RetryAll(r.Context(), f, in.From, store.RetryAllOptions{
			Until: time.Now().Add(retryTimeout),
			Audit: func(tasks int) (store.AuditEntry, error) {
				detail := map[string]any{"filter": in.Filter, "from": in.From, "tasks": tasks}
				return newAuditEntry(r, "retry_all", "", detail), nil
			},
		})
	}
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(struct {
		Matched   int  `json:"matched"`
		Retried   int  `json:"retried"`
		Remaining int  `json:"remaining"`
		DryRun    bool `json:"dry_run"`
	}{result.Matched, result.Retried, result.Remaining, in.DryRun})
}

// overrideTask submits a task that replaces one or more others.
func (s *Server) overrideTask(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	id, err := pathID(r)
	if err != nil {
		return jsonResponse{}, err
	}
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
	replaced := append([]store.ID{id}, in.OtherTasks...)
	var receipt store.Receipt
	err = s.opts.Store.WithAudit(r.Context(), func(st *store.Store) (store.AuditEntry, error) {
		receipt, err = st.Override(r.Context(), replaced, subs[0])
		detail := map[string]any{"by": receipt.ID, "tasks": replaced, "source": redact.Source(subs[0].Source)}
		return newAuditEntry(r, "override", id.String(), detail), err
	})
	if err != nil {
		return jsonResponse{}, err
	}
	return s.receiptsResponse([]store.Receipt{receipt}, false), nil
}
