package web

import (
	"encoding/json"
	"io"
	"net/http"
)

// jsonResponse is what a handler returns: a status and a body; no body if nil.
type jsonResponse struct {
	status int
	body   any
	// location is the address of a created resource, nextPage that of the next page of a list.
	location, nextPage string
}

func okResponse(body any) (jsonResponse, error) {
	return jsonResponse{status: http.StatusOK, body: body}, nil
}

func (a jsonResponse) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if a.location != "" {
		h.Set("Location", a.location)
	}
	if a.nextPage != "" {
		h.Set("Link", "<"+a.nextPage+`>; rel="next"`)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = writeJSON(w, a.body) // fails only if the client has disconnected
}

// writeJSON writes one line. It need not escape HTML: the media type says that the response is no page.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
