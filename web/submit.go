package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

const (
	submitMost = 1 << 20 // bytes of a submission
	tasksMost  = 1000    // tasks of one
	paramsMost = 10 << 10
)

// submission is a new task as JSON.
type submission struct {
	Source    string          `json:"source"`
	Params    json.RawMessage `json:"params"`
	Priority  int16           `json:"priority"`
	RequestID string          `json:"request_id"`
	UserID    string          `json:"user_id"`
	NotBefore *time.Time      `json:"not_before"`
}

// submissions is one or many of them.
type submissions struct {
	submission
	Tasks []submission `json:"tasks"`
}

// all are the submissions of a request, and whether they came as a list.
func (in submissions) all() (all []submission, many bool, err error) {
	if in.Tasks == nil {
		return []submission{in.submission}, false, nil
	}
	one := in.submission
	if one.Source != "" || one.Params != nil || one.Priority != 0 || one.RequestID != "" || one.UserID != "" || one.NotBefore != nil {
		return nil, true, refuse(kindRequest, "either tasks, or the members of one task")
	}
	if len(in.Tasks) == 0 || len(in.Tasks) > tasksMost {
		return nil, true, refuse(kindRequest, "tasks has 1 to %d tasks", tasksMost)
	}
	return in.Tasks, true, nil
}

// store is the submission as the store knows it.
func (in submission) store() (store.Submission, error) {
	for _, text := range []string{in.Source, in.RequestID, in.UserID} {
		if len(text) > textMost {
			return store.Submission{}, refuse(kindInvalid, "source, request_id and user_id have at most %d bytes", textMost)
		}
	}
	if len(in.Params) > paramsMost {
		return store.Submission{}, refuse(kindInvalid, "params have at most %d bytes", paramsMost)
	}
	sub := store.Submission{Source: in.Source, Params: in.Params, Priority: in.Priority, RequestID: in.RequestID, UserID: in.UserID}
	if string(in.Params) == "null" {
		sub.Params = nil
	}
	if in.NotBefore != nil {
		sub.NotBefore = *in.NotBefore
	}
	return sub, nil
}

// CheckSource is what is done where Options.CheckSource is not set. Sources that
// make no sense are for the pipeline to refuse.
func CheckSource(who access.Principal, source string) error {
	switch scheme, _, ok := strings.Cut(source, "://"); {
	case ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		if u, err := url.Parse(source); err != nil || u.Hostname() == "" {
			return fmt.Errorf("%w: the source is not a URL with a host", store.ErrInvalid)
		}
		return nil
	case ok && strings.EqualFold(scheme, "file"), strings.HasPrefix(source, "/"):
		if who.Scope < access.Admin {
			return fmt.Errorf("%w: files of this host are for the scope admin; upload yours, or name an http or https URL", access.ErrScope)
		}
		return nil
	}
	return fmt.Errorf("%w: the source is neither an http or https URL nor an absolute path", store.ErrInvalid)
}

// receipt answers a submission.
type receipt struct {
	ID      store.ID `json:"task_id"`
	Existed bool     `json:"existed"`
}

// accept checks submissions and makes them what the store knows.
func (s *Server) accept(r *http.Request, in []submission) ([]store.Submission, error) {
	who := access.From(r.Context())
	subs := make([]store.Submission, len(in))
	for i := range in {
		var err error
		if subs[i], err = in[i].store(); err != nil {
			return nil, err
		}
		subs[i].SubmittedBy = who.Submitter()
		subs[i].Traceparent = r.Header.Get("Traceparent") // what is none, the store leaves out
		if subs[i].Source == "" {
			continue // the store says so
		}
		if err := s.o.CheckSource(who, subs[i].Source); err != nil {
			return nil, err
		}
	}
	return subs, nil
}

func (s *Server) submit(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in submissions
	if err := decode(w, r, submitMost, false, &in); err != nil {
		return answer{}, err
	}
	all, many, err := in.all()
	if err != nil {
		return answer{}, err
	}
	subs, err := s.accept(r, all)
	if err != nil {
		return answer{}, err
	}
	var receipts []store.Receipt
	err = s.o.Store.WithAudit(r.Context(), func(in *store.Store) (store.AuditEntry, error) {
		if receipts, err = in.SubmitAll(r.Context(), subs); err != nil {
			return store.AuditEntry{}, err
		}
		return submitEntry(r, subs, receipts), nil
	})
	if err != nil {
		return answer{}, err
	}
	return s.receipts(receipts, many), nil
}

// submitEntry is the audit's, of what was not there before.
func submitEntry(r *http.Request, subs []store.Submission, receipts []store.Receipt) store.AuditEntry {
	var added []int
	for i, got := range receipts {
		if !got.Existed {
			added = append(added, i)
		}
	}
	switch len(added) {
	case 0:
		return store.AuditEntry{}
	case 1:
		i := added[0]
		return entry(r, "submit", receipts[i].ID.String(), map[string]any{"source": redact.Source(subs[i].Source)})
	}
	first, last := receipts[added[0]].ID, receipts[added[len(added)-1]].ID
	return entry(r, "submit", "", map[string]any{"tasks": len(added), "first": first, "last": last})
}

func (s *Server) receipts(receipts []store.Receipt, many bool) answer {
	a := answer{status: http.StatusOK}
	list := make([]receipt, len(receipts))
	for i, r := range receipts {
		list[i] = receipt{r.ID, r.Existed}
		if !r.Existed {
			a.status = http.StatusCreated
		}
	}
	if many {
		a.body = map[string]any{"tasks": list}
		return a
	}
	a.body, a.location = list[0], s.o.BasePath+api+"/tasks/"+list[0].ID.String()
	return a
}

// entry is one for the audit.
func entry(r *http.Request, action, target string, detail map[string]any) store.AuditEntry {
	text, err := json.Marshal(detail)
	if err != nil || detail == nil {
		text = nil
	}
	return store.AuditEntry{Actor: access.From(r.Context()).Name, Action: action, Target: target, Detail: text}
}
