package web

import (
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

// route is one operation, as openapi.json describes it and the mux serves it.
type route struct {
	method, path string
	scope        access.Scope // None: no authentication
	// Either handle, which returns the response, or serveHTTP, which writes it.
	handle    handler
	serveHTTP http.HandlerFunc
	// query has the names of the parameters that handle accepts. Other parameters are refused before.
	query []string
}

// handler returns a response. It reads the path with [pathID] and the query with [parsedQuery].
type handler func(w http.ResponseWriter, r *http.Request) (jsonResponse, error)

func jsonRoute(method, path string, scope access.Scope, handle handler, query ...string) route {
	return route{method: method, path: path, scope: scope, handle: handle, query: query}
}

func rawRoute(method, path string, scope access.Scope, h http.HandlerFunc) route {
	return route{method: method, path: path, scope: scope, serveHTTP: h}
}

const (
	apiPath    = "/api/v1"
	workerPath = apiPath + "/worker"
)

// handlerTimeout is how long a handler may take that only uses the database.
const handlerTimeout = 30 * time.Second
