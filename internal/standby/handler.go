package standby

import (
	"context"
	"net/http"
	"strings"
)

// Handler wraps a handler of requests, so that clients read their own writes: reads of a request that may change
// something go to the primary, and before a byte of its response is sent, [Router.Require] is called. The same holds
// for requests of events, whose paths end with /events.
func (r *Router) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		isRead := req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions
		if isRead && !strings.HasSuffix(req.URL.Path, "/events") {
			next.ServeHTTP(w, req)
			return
		}
		ctx := context.WithValue(req.Context(), primaryOnly{}, true)
		next.ServeHTTP(&requiringWriter{ResponseWriter: w, require: func() { r.Require(ctx) }}, req.WithContext(ctx))
	})
}

// requiringWriter calls require before it writes. One goroutine uses it.
type requiringWriter struct {
	http.ResponseWriter
	require func() // nil after the call
}

func (w *requiringWriter) begin() {
	if w.require != nil {
		w.require()
		w.require = nil
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *requiringWriter) WriteHeader(status int) {
	if status >= 200 {
		w.begin()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *requiringWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *requiringWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
