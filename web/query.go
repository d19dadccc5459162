package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

const (
	defaultPageSize = 100
	maxPageSize     = 1000
	maxText         = 2048 // bytes of a parameter
)

// queryParameters reads a query. Its methods return a zero value for a parameter that is not given or invalid; err
// then has the first error.
type queryParameters struct {
	values url.Values
	err    error
}

// parseQuery refuses parameters that are unknown, repeated, or not text that PostgreSQL can store.
func parseQuery(r *http.Request, known ...string) queryParameters {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return queryParameters{err: problem.New(problem.InvalidRequest, "the query is not percent-encoded correctly")}
	}
	return queryParameters{values, checkQuery(values, known)}
}

// parsedQuery returns the parameters of a request that parseQuery has checked.
func parsedQuery(r *http.Request) queryParameters { return queryParameters{values: r.URL.Query()} }

func checkQuery(values url.Values, known []string) error {
	for name, all := range values {
		switch {
		case len(known) == 0:
			return problem.New(problem.InvalidRequest, "unknown parameter %q; this route has no parameters", name)
		case !slices.Contains(known, name):
			return problem.New(problem.InvalidRequest, "unknown parameter %q; allowed: %s", name, strings.Join(known, ", "))
		case len(all) > 1:
			return problem.New(problem.InvalidRequest, "the parameter %s is repeated", name)
		}
		if err := checkText("the parameter "+name, all[0]); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses text that PostgreSQL cannot store, and long text.
func checkText(name, text string) error {
	if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return problem.New(problem.InvalidRequest, "%s must be UTF-8 text without NUL of at most %d bytes", name, maxText)
	}
	return nil
}

func (p *queryParameters) text(name string) string { return p.values.Get(name) }

// limit returns the size of a page.
func (p *queryParameters) limit() int {
	text := p.text("limit")
	if text == "" {
		return defaultPageSize
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPageSize {
		p.reject("limit", fmt.Sprintf("a number from 1 to %d", maxPageSize))
		return defaultPageSize
	}
	return n
}

// eventID returns the id of an event or of an audit entry.
func (p *queryParameters) eventID(name string) int64 {
	n, given, ok := parseEventID(p.text(name))
	if given && !ok {
		p.reject(name, "a number from an earlier response")
	}
	return n
}

func parseEventID(text string) (n int64, given, ok bool) {
	if text == "" {
		return 0, false, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, true, false
	}
	return n, true, true
}

func (p *queryParameters) id(name string) store.ID {
	text := p.text(name)
	if text == "" {
		return store.ID{}
	}
	id, err := store.ParseID(text)
	if err != nil {
		p.reject(name, "an id")
	}
	return id
}

func (p *queryParameters) flag(name string) bool {
	switch p.text(name) {
	case "", "false":
		return false
	case "true":
		return true
	}
	p.reject(name, "true or false")
	return false
}

func (p *queryParameters) reject(name, want string) {
	if p.err == nil {
		p.err = problem.New(problem.InvalidRequest, "the parameter %s must be %s", name, want)
	}
}

// parsePathID returns the id in the path of a request. A malformed id names nothing.
func parsePathID(r *http.Request) (store.ID, error) {
	id, err := store.ParseID(r.PathValue("id"))
	if err != nil || id.IsZero() {
		return store.ID{}, problem.New(problem.NotFound, "the path does not contain a valid id")
	}
	return id, nil
}

// pathID returns the id in the path of a request of a [jsonRoute], which has checked it.
func pathID(r *http.Request) store.ID {
	id, _ := parsePathID(r)
	return id
}
