package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
)

const api = "/api/v1"

// answerIn is how long a handler may take that only asks the database.
const answerIn = 30 * time.Second

// route is one operation: what openapi.json describes, and what the mux knows.
type route struct {
	method, path string
	scope        access.Scope // None: for everybody
	// Either handle, which returns what is to be answered, or raw, which does
	// everything itself.
	handle handler
	raw    http.HandlerFunc
	// query are the parameters that handle knows. Any other is refused before it is
	// asked.
	query []string
}

// handler returns what is to be answered. The query, it reads with [given].
type handler func(w http.ResponseWriter, r *http.Request) (answer, error)

func answered(method, path string, scope access.Scope, handle handler, query ...string) route {
	return route{method: method, path: path, scope: scope, handle: handle, query: query}
}

func raw(method, path string, scope access.Scope, h http.HandlerFunc) route {
	return route{method: method, path: path, scope: scope, raw: h}
}

// routing lists the routes that there are with these options.
func (s *Server) routing() []route {
	routes := s.taskRoutes()
	if s.o.Subscribe != nil {
		routes = append(routes,
			raw("GET", api+"/events/stream", access.Read, s.limited(streamWait, http.HandlerFunc(s.streamEvents)).ServeHTTP),
			raw("GET", api+"/tasks/{id}/events", access.Read, s.limited(streamWait, http.HandlerFunc(s.streamTask)).ServeHTTP))
	}
	if s.o.Published != "" {
		routes = append(routes, raw("GET", api+"/published/{id}/{path...}", access.Read, s.published))
	}
	if s.o.Webhooks != nil {
		routes = append(routes, s.webhookRoutes()...)
	}
	return append(routes, s.givenRoutes()...)
}

// taskRoutes are those that are always there.
func (s *Server) taskRoutes() []route {
	read, submit, admin := access.Read, access.Submit, access.Admin
	return []route{
		raw("GET", "/openapi.json", read, s.getOpenAPI),
		raw("POST", "/login", access.None, s.login),
		raw("POST", "/logout", access.None, s.logout),
		answered("POST", api+"/tasks", submit, s.submit),
		answered("GET", api+"/tasks", read, s.listTasks, append(filterNames, "after", "limit")...),
		answered("POST", api+"/tasks/retry", admin, s.retryAll),
		answered("GET", api+"/tasks/{id}", read, s.getTask),
		answered("POST", api+"/tasks/{id}/retry", admin, s.retry),
		answered("POST", api+"/tasks/{id}/cancel", admin, s.cancel),
		answered("POST", api+"/tasks/{id}/override", admin, s.override),
		answered("GET", api+"/workers", read, s.listWorkers, "all", "after", "limit"),
		answered("POST", api+"/workers/{id}/drain", admin, s.drainWorker),
		answered("GET", api+"/pauses", read, s.listPauses),
		answered("POST", api+"/pauses", admin, s.pause),
		answered("DELETE", api+"/pauses", admin, s.resume, "stage", "host"),
		answered("GET", api+"/stages", read, s.listStages),
		raw("GET", api+"/events", read, s.listEvents),
		answered("GET", api+"/keys", admin, s.listKeys),
		answered("POST", api+"/keys", admin, s.createKey),
		answered("DELETE", api+"/keys/{id}", admin, s.revokeKey),
		answered("GET", api+"/audit", admin, s.listAudit, "after", "limit"),
	}
}

// givenRoutes are those of the handlers among the options.
func (s *Server) givenRoutes() (routes []route) {
	for path, h := range map[string]http.Handler{"/healthz": s.o.Healthy, "/readyz": s.o.Ready} {
		if h != nil {
			routes = append(routes, raw("GET", path, access.None, h.ServeHTTP))
		}
	}
	if s.o.Metrics != nil {
		routes = append(routes, raw("GET", "/metrics", access.Read, s.o.Metrics.ServeHTTP))
	}
	if h := s.o.Uploads; h != nil {
		for _, method := range []string{"OPTIONS", "POST", "PUT", "GET"} {
			routes = append(routes, raw(method, api+"/uploads/", access.Submit, h.ServeHTTP))
		}
		for _, method := range []string{"HEAD", "GET", "PATCH", "DELETE", "PUT", "OPTIONS", "POST"} {
			routes = append(routes, raw(method, api+"/uploads/{id}", access.Submit, h.ServeHTTP))
		}
	}
	return routes
}

// mux has the routes, a word for what is asked in the wrong way, and the
// dashboard.
func (s *Server) mux() *http.ServeMux {
	m := http.NewServeMux()
	base := s.o.BasePath
	methods := make(map[string][]string)
	for _, r := range s.routes {
		path := r.path
		if strings.HasSuffix(path, "/") {
			path += "{$}"
		}
		m.Handle(r.method+" "+base+path, s.serve(r))
		methods[path] = append(methods[path], r.method)
	}
	for path, allowed := range methods {
		if path == "/login" && s.o.Dashboard != nil {
			continue // it draws the page
		}
		refused := s.wrongMethod(allowed)
		// One by one: a pattern for all methods would be in the way of more general
		// ones for some.
		for _, method := range []string{"DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT"} {
			if !slices.Contains(allowed, method) {
				m.Handle(method+" "+base+path, refused)
			}
		}
	}
	nothing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, refuse(kindNotFound, "there is nothing at this address"))
	})
	m.Handle(base+"/api/", nothing)
	home := "/"
	if s.o.Dashboard != nil {
		home = base + "/"
		m.Handle(home, http.StripPrefix(base, s.dashboard()))
	}
	if home != "/" || s.o.Dashboard == nil {
		m.Handle("/", nothing)
	}
	return m
}

func (s *Server) wrongMethod(allowed []string) http.Handler {
	allowed = slices.Clone(allowed)
	if slices.Contains(allowed, "GET") && !slices.Contains(allowed, "HEAD") {
		allowed = append(allowed, "HEAD")
	}
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", list)
		s.fail(w, r, refuse(kindMethod, "possible are %s", list))
	})
}

// serve checks the scope, and for most routes writes the answer.
func (s *Server) serve(rt route) http.Handler {
	if rt.raw != nil { // apart, as what is here stays on the stack of streams
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := access.Check(r.Context(), rt.scope); err != nil {
				s.fail(w, r, err)
				return
			}
			rt.raw(w, r)
		})
	}
	handle := s.limited(requestWait, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerIn)
		defer cancel()
		a, err := rt.handle(w, r.WithContext(ctx))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		a.write(w)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.Check(r.Context(), rt.scope); err != nil {
			s.fail(w, r, err)
			return
		}
		if p := query(r, rt.query...); p.err != nil {
			s.fail(w, r, p.err)
			return
		}
		handle.ServeHTTP(w, r)
	})
}

func (s *Server) getOpenAPI(w http.ResponseWriter, r *http.Request) {
	if p := query(r); p.err != nil {
		s.fail(w, r, p.err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.openAPI)
}
