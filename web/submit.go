package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/store"
)

const (
	maxSubmission      = 1 << 20 // bytes of a request
	maxTasksPerRequest = 1000
	maxParams          = 10 << 10 // bytes
)

// submission is a new task as JSON.
type submission struct {
	Source    string          `json:"source"`
	Params    json.RawMessage `json:"params"`
	Priority  int16           `json:"priority"`
	RequestID string          `json:"request_id"`
	UserID    string          `json:"user_id"`
	NotBefore *time.Time      `json:"not_before"`

	UserContext json.RawMessage `json:"user_context"`

	Placement map[string]store.Placement `json:"placement"` // by stage
}

// submitRequest has either one submission or a list of them.
type submitRequest struct {
	submission
	Tasks []submission `json:"tasks"`
}

func (in submitRequest) list() (all []submission, isList bool, err error) {
	if in.Tasks == nil {
		return []submission{in.submission}, false, nil
	}
	one := in.submission
	if one.Source != "" || one.Params != nil || one.Priority != 0 || one.RequestID != "" || one.UserID != "" ||
		one.NotBefore != nil || one.Placement != nil || one.UserContext != nil {
		return nil, true, problem.New(problem.InvalidRequest, "the body has both tasks and members of one task")
	}
	if len(in.Tasks) == 0 || len(in.Tasks) > maxTasksPerRequest {
		return nil, true, problem.New(problem.InvalidRequest, "tasks must have 1 to %d items", maxTasksPerRequest)
	}
	return in.Tasks, true, nil
}

func (in submission) toStoreSubmission() (store.Submission, error) {
	for _, text := range []string{in.Source, in.RequestID, in.UserID} {
		if len(text) > maxText {
			return store.Submission{}, problem.New(problem.Invalid,
				"source, request_id and user_id can have at most %d bytes", maxText)
		}
	}
	if len(in.Params) > maxParams {
		return store.Submission{}, problem.New(problem.Invalid, "params can have at most %d bytes", maxParams)
	}
	sub := store.Submission{
		Source: in.Source, Params: in.Params, Priority: in.Priority, RequestID: in.RequestID, UserID: in.UserID,
		Placement: in.Placement, UserContext: in.UserContext,
	}
	if string(in.Params) == "null" {
		sub.Params = nil
	}
	if string(in.UserContext) == "null" {
		sub.UserContext = nil
	}
	if in.NotBefore != nil {
		sub.NotBefore = *in.NotBefore
	}
	return sub, nil
}

// CheckSource is the default of Options.CheckSource. It accepts http and https URLs, and absolute paths and file URLs
// for the scope admin only, because the pipeline publishes any video of this host that it can read. Other forms are
// invalid; the pipeline checks the rest.
func CheckSource(who access.Principal, source string) error {
	switch scheme, _, ok := strings.Cut(source, "://"); {
	case ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		if u, err := url.Parse(source); err != nil || u.Hostname() == "" {
			return fmt.Errorf("%w: the source must be a URL with a host", store.ErrInvalid)
		}
		return nil
	case ok && strings.EqualFold(scheme, "file"), strings.HasPrefix(source, "/"):
		if !who.Scope.Allows(access.Admin) {
			return fmt.Errorf("%w: files of the server require the scope admin; upload the file, or use an http or https URL",
				access.ErrForbidden)
		}
		return nil
	}
	return fmt.Errorf("%w: the source must be an http or https URL or an absolute path", store.ErrInvalid)
}

// checkSubmissions converts submissions and checks their sources.
func (s *Server) checkSubmissions(r *http.Request, in []submission) ([]store.Submission, error) {
	who := access.PrincipalOf(r.Context())
	subs := make([]store.Submission, len(in))
	for i := range in {
		var err error
		if subs[i], err = in[i].toStoreSubmission(); err != nil {
			return nil, err
		}
		subs[i].SubmittedBy = who.Submitter()
		subs[i].Traceparent = r.Header.Get("Traceparent") // the store ignores an invalid one
		if subs[i].Source == "" {
			continue // the store refuses it
		}
		if err := s.opts.CheckSource(who, subs[i].Source); err != nil {
			return nil, err
		}
	}
	return subs, nil
}

func (s *Server) submitTasks(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in submitRequest
	if err := decode(w, r, maxSubmission, false, &in); err != nil {
		return jsonResponse{}, err
	}
	list, isList, err := in.list()
	if err != nil {
		return jsonResponse{}, err
	}
	subs, err := s.checkSubmissions(r, list)
	if err != nil {
		return jsonResponse{}, err
	}
	receipts, err := s.actions().Submit(r.Context(), subs...)
	if err != nil {
		return jsonResponse{}, err
	}
	return s.receiptsResponse(receipts, isList), nil
}

// receipt is the response to a submission.
type receipt struct {
	ID      store.ID `json:"task_id"`
	Existed bool     `json:"existed"`
}

func (s *Server) receiptsResponse(receipts []store.Receipt, isList bool) jsonResponse {
	response := jsonResponse{status: http.StatusOK}
	list := make([]receipt, len(receipts))
	for i, r := range receipts {
		list[i] = receipt{r.ID, r.Existed}
		if !r.Existed {
			response.status = http.StatusCreated
		}
	}
	if isList {
		response.body = map[string]any{"tasks": list}
		return response
	}
	response.body, response.location = list[0], s.opts.BasePath+apiPath+"/tasks/"+list[0].ID.String()
	return response
}

// actions returns the actions of the principal in a request's context.
func (s *Server) actions() ops.Actions {
	authorize := func(ctx context.Context, need access.Scope) (string, error) {
		return access.PrincipalOf(ctx).Name, access.Check(ctx, need)
	}
	a := ops.Actions{Store: s.opts.Store, Authorize: authorize, MaxPerMinute: s.opts.MaxSubmissionsPerUser}
	if s.opts.Profiles {
		a.Prepare = profiles.Prepare
	}
	return a
}
