package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cuelight/cuelight/store"
)

const (
	pageDefault = 100
	pageMost    = 1000
	textMost    = 2048 // bytes of a parameter
)

// parameters reads a query strictly: a parameter that is not known, comes twice,
// or is no text that the database could have, is refused.
type parameters struct {
	values url.Values
	err    error
}

func query(r *http.Request, known ...string) parameters {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return parameters{err: refuse(kindRequest, "the query is not encoded as it should be")}
	}
	return checked(values, known)
}

// given are the parameters of a request of which those that the route knows were
// checked.
func given(r *http.Request) parameters { return parameters{values: r.URL.Query()} }

func checked(values url.Values, known []string) parameters {
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return parameters{err: unknownParameter(name, known)}
		case len(all) > 1:
			return parameters{err: refuse(kindRequest, "the parameter %s is there twice", name)}
		}
		if err := checkText(all[0]); err != nil {
			return parameters{err: refuse(kindRequest, "the parameter %s is %v", name, err)}
		}
	}
	return parameters{values: values}
}

func unknownParameter(name string, known []string) error {
	if len(known) == 0 {
		return refuse(kindRequest, "there is no parameter %q; this takes none", name)
	}
	return refuse(kindRequest, "there is no parameter %q; those are %s", name, strings.Join(known, ", "))
}

func checkText(text string) error {
	if len(text) > textMost || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return errors.New("not UTF-8 text without NUL of at most 2048 bytes")
	}
	return nil
}

func (p *parameters) text(name string) string { return p.values.Get(name) }

// limit is how long a page may be.
func (p *parameters) limit() int {
	text := p.text("limit")
	if text == "" {
		return pageDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > pageMost {
		p.refuse("limit", "a number from 1 to 1000")
		return pageDefault
	}
	return n
}

// place is a number that grows.
func (p *parameters) place(name string) int64 {
	n, given, ok := parsePlace(p.text(name))
	if given && !ok {
		p.refuse(name, "a number that was in an answer before")
	}
	return n
}

// parsePlace reads the id of an event.
func parsePlace(text string) (n int64, given, ok bool) {
	if text == "" {
		return 0, false, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, true, false
	}
	return n, true, true
}

func (p *parameters) id(name string) store.ID {
	text := p.text(name)
	if text == "" {
		return store.ID{}
	}
	id, err := store.ParseID(text)
	if err != nil {
		p.refuse(name, "an id")
	}
	return id
}

func (p *parameters) flag(name string) bool {
	switch p.text(name) {
	case "", "false":
		return false
	case "true":
		return true
	}
	p.refuse(name, "true or false")
	return false
}

func (p *parameters) refuse(name, want string) {
	if p.err == nil {
		p.err = refuse(kindRequest, "the parameter %s is not %s", name, want)
	}
}

// pathID is the id in a path. What is no id is the name of nothing.
func pathID(r *http.Request) (store.ID, error) {
	id, err := store.ParseID(r.PathValue("id"))
	if err != nil || id.IsZero() {
		return store.ID{}, refuse(kindNotFound, "what stands in the address is not an id")
	}
	return id, nil
}

// filter chooses tasks: as parameters, and as JSON.
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

func (p *parameters) filter() filter {
	return filter{
		Status: p.text("status"), Stage: p.text("stage"), StageStatus: p.text("stage_status"), UserID: p.text("user_id"),
		RequestID: p.text("request_id"), Source: p.text("source"), Error: p.text("error"),
	}
}

var statuses = []store.Status{
	store.StatusPending, store.StatusInProgress, store.StatusCompleted, store.StatusFailed, store.StatusDead, store.StatusCancelled,
	store.StatusScheduled, // of a task as a whole alone
}

// store is the filter as the store knows it.
func (f filter) store() (store.Filter, error) {
	for _, status := range []string{f.Status, f.StageStatus} {
		if status != "" && !slices.Contains(statuses, store.Status(status)) {
			return store.Filter{}, refuse(kindRequest, "there is no status %q", status)
		}
	}
	if f.StageStatus == string(store.StatusScheduled) {
		return store.Filter{}, refuse(kindRequest, "there is no stage_status %q: a task as a whole is scheduled", f.StageStatus)
	}
	if (f.Stage == "") != (f.StageStatus == "") {
		return store.Filter{}, refuse(kindRequest, "stage and stage_status go together")
	}
	for _, text := range []string{f.Stage, f.UserID, f.RequestID, f.Source, f.Error} {
		if err := checkText(text); err != nil {
			return store.Filter{}, refuse(kindRequest, "a condition is %v", err)
		}
	}
	return store.Filter{
		Status: store.Status(f.Status), Stage: f.Stage, StageStatus: store.Status(f.StageStatus),
		UserID: f.UserID, RequestID: f.RequestID, Source: f.Source, Error: f.Error,
	}, nil
}

// next is the address of the page after this one.
func (s *Server) next(path string, p parameters, after string) string {
	values := url.Values{}
	for name := range p.values {
		if text := p.text(name); text != "" {
			values.Set(name, text)
		}
	}
	values.Set("after", after)
	return s.o.BasePath + path + "?" + values.Encode()
}
