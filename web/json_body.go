package web

import (
	"mime"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/jsonbody"
	"github.com/cuelight/cuelight/internal/problem"
)

const (
	maxBody     = 64 << 10 // bytes of JSON, if a route sets no other limit
	bodyTimeout = 30 * time.Second
)

// decode reads the body of a request, one JSON value of up to limit bytes, into v. If optional, it may be empty.
func decode(w http.ResponseWriter, r *http.Request, limit int64, optional bool, v any) error {
	text, err := jsonbody.Read(w, r, limit)
	if err != nil || len(text) == 0 && optional {
		return err
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return problem.New(problem.UnsupportedMediaType, "the header Content-Type must be application/json")
	}
	return jsonbody.Decode(text, v)
}

// withoutBody makes a handler that reads no body refuse any but an empty object.
func withoutBody(handle handler) handler {
	return func(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
		if err := decode(w, r, maxBody, true, &struct{}{}); err != nil {
			return jsonResponse{}, err
		}
		return handle(w, r)
	}
}
