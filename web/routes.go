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
	handle func(w http.ResponseWriter, r *http.Request) (answer, error)
	raw    http.HandlerFunc
}

// routing lists the routes that there are with these options.
func (s *Server) routing() []route {
	routes := s.taskRoutes()
	if s.o.Subscribe != nil {
		routes = append(routes,
			route{"GET", api + "/events/stream", access.Read, nil, s.streamEvents},
			route{"GET", api + "/tasks/{id}/events", access.Read, nil, s.streamTask})
	}
	if s.o.Published != "" {
		routes = append(routes, route{"GET", api + "/published/{id}/{path...}", access.Read, nil, s.published})
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
		{"GET", "/openapi.json", read, nil, s.getOpenAPI},
		{"POST", "/login", access.None, nil, s.login},
		{"POST", "/logout", access.None, nil, s.logout},
		{"POST", api + "/tasks", submit, s.submit, nil},
		{"GET", api + "/tasks", read, s.listTasks, nil},
		{"POST", api + "/tasks/retry", admin, s.retryAll, nil},
		{"GET", api + "/tasks/{id}", read, s.getTask, nil},
		{"POST", api + "/tasks/{id}/retry", admin, s.retry, nil},
		{"POST", api + "/tasks/{id}/cancel", admin, s.cancel, nil},
		{"POST", api + "/tasks/{id}/override", admin, s.override, nil},
		{"GET", api + "/workers", read, s.listWorkers, nil},
		{"POST", api + "/workers/{id}/drain", admin, s.drainWorker, nil},
		{"GET", api + "/pauses", read, s.listPauses, nil},
		{"POST", api + "/pauses", admin, s.pause, nil},
		{"DELETE", api + "/pauses", admin, s.resume, nil},
		{"GET", api + "/stages", read, s.listStages, nil},
		{"GET", api + "/events", read, nil, s.listEvents},
		{"GET", api + "/keys", admin, s.listKeys, nil},
		{"POST", api + "/keys", admin, s.createKey, nil},
		{"DELETE", api + "/keys/{id}", admin, s.revokeKey, nil},
		{"GET", api + "/audit", admin, s.listAudit, nil},
	}
}

// givenRoutes are those of the handlers among the options.
func (s *Server) givenRoutes() (routes []route) {
	for path, h := range map[string]http.Handler{"/healthz": s.o.Healthy, "/readyz": s.o.Ready} {
		if h != nil {
			routes = append(routes, route{"GET", path, access.None, nil, h.ServeHTTP})
		}
	}
	if s.o.Metrics != nil {
		routes = append(routes, route{"GET", "/metrics", access.Read, nil, s.o.Metrics.ServeHTTP})
	}
	if h := s.o.Uploads; h != nil {
		for _, method := range []string{"OPTIONS", "POST", "PUT", "GET"} {
			routes = append(routes, route{method, api + "/uploads/", access.Submit, nil, h.ServeHTTP})
		}
		for _, method := range []string{"HEAD", "GET", "PATCH", "DELETE", "PUT", "OPTIONS"} {
			routes = append(routes, route{method, api + "/uploads/{id}", access.Submit, nil, h.ServeHTTP})
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.Check(r.Context(), rt.scope); err != nil {
			s.fail(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerIn)
		defer cancel()
		a, err := rt.handle(w, r.WithContext(ctx))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		a.write(w)
	})
}

func (s *Server) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.openAPI)
}
