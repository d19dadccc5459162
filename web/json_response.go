package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// jsonResponse is what a handler returns: a status and a body; no body if nil.
type jsonResponse struct {
	status int
	body   any
	// location is the address of a created resource, nextPage that of the next page of a list.
	location, nextPage string
}

// okResponse responds with the result of a call.
func okResponse(body any, err error) (jsonResponse, error) {
	if err != nil {
		return jsonResponse{}, err
	}
	return jsonResponse{status: http.StatusOK, body: body}, nil
}

// listResponse responds with a list that has no pages, as the member name.
func listResponse[T any](name string, items []T, err error) (jsonResponse, error) {
	return okResponse(map[string]any{name: append([]T{}, items...)}, err) // null is no list
}

func noContentResponse(err error) (jsonResponse, error) {
	return jsonResponse{status: http.StatusNoContent}, err
}

// pageResponse is a page of a list, whose items are the member name. The next page, if any, starts after an item.
func pageResponse(r *http.Request, name string, items any, after string) (jsonResponse, error) {
	response := jsonResponse{status: http.StatusOK}
	body := map[string]any{name: items}
	if after != "" {
		query := r.URL.Query()
		maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
		query.Set("after", after)
		response.nextPage = r.URL.Path + "?" + query.Encode()
		body["next"] = response.nextPage
	}
	response.body = body
	return response, nil
}

// cutPage cuts items, of which one more than the limit was read, and returns the id of the last one if there are more.
func cutPage[T any](items []T, limit int, id func(T) string) (page []T, after string) {
	if len(items) > limit {
		items, after = items[:limit], id(items[limit-1])
	}
	return append([]T{}, items...), after // null is no list
}

// respond writes a response, or an error if its body cannot be encoded.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, a jsonResponse) {
	// It need not escape HTML: the media type says that the response is no page.
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if a.body != nil {
		if err := enc.Encode(a.body); err != nil {
			s.writeError(w, r, fmt.Errorf("encode response: %w", err))
			return
		}
	}
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
	_, _ = w.Write(body.Bytes()) // fails only if the client has disconnected
}
