package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/stages/remote"
)

// buildRoutes lists the routes that the options enable.
func (s *Server) buildRoutes() []route {
	routes := s.coreRoutes()
	if s.opts.Subscribe != nil {
		events := s.limitRequests(streamWait, http.HandlerFunc(s.streamEvents)).ServeHTTP
		task := s.limitRequests(streamWait, http.HandlerFunc(s.streamTask)).ServeHTTP
		routes = append(routes,
			rawRoute("GET", apiPath+"/events/stream", access.Read, events),
			rawRoute("GET", apiPath+"/tasks/{id}/events", access.Read, task))
	}
	if s.opts.Published != "" || s.opts.OpenPublished != nil {
		routes = append(routes, rawRoute("GET", apiPath+"/published/{id}/{path...}", access.Read, s.servePublished))
		if s.opts.Playback != nil {
			routes = append(routes, s.playbackRoutes()...)
		}
	}
	if s.opts.Webhooks != nil {
		routes = append(routes, s.webhookRoutes()...)
	}
	if s.opts.Profiles {
		routes = append(append(routes, s.profileRoutes()...), s.captionRoutes()...)
		routes = append(routes, jsonRoute("PATCH", apiPath+"/tasks/{id}", access.Admin, s.updateTask))
	}
	if s.opts.Workers != nil {
		workers := http.StripPrefix(s.opts.BasePath+workerPath, s.opts.Workers)
		for _, r := range remote.Routes() {
			routes = append(routes, rawRoute(r.Method, workerPath+r.Path, access.Work, workers.ServeHTTP))
		}
	}
	return append(routes, s.optionalRoutes()...)
}

func (s *Server) coreRoutes() []route {
	read, submit, admin := access.Read, access.Submit, access.Admin
	return []route{
		rawRoute("GET", "/openapi.json", read, s.getOpenAPI),
		rawRoute("POST", "/login", access.None, s.login),
		rawRoute("POST", "/logout", access.None, s.logout),
		jsonRoute("POST", apiPath+"/tasks", submit, s.submitTasks),
		jsonRoute("GET", apiPath+"/tasks", read, s.listTasks, append(filterNames, "after", "limit")...),
		jsonRoute("POST", apiPath+"/tasks/retry", admin, s.retryTasks),
		jsonRoute("GET", apiPath+"/tasks/{id}", read, s.getTask),
		jsonRoute("POST", apiPath+"/tasks/{id}/retry", admin, s.retryTask),
		jsonRoute("POST", apiPath+"/tasks/{id}/cancel", admin, withoutBody(s.cancelTask)),
		jsonRoute("DELETE", apiPath+"/tasks/{id}", admin, s.deleteTask, "keep_published", "purge"),
		jsonRoute("POST", apiPath+"/tasks/{id}/undelete", admin, withoutBody(s.undeleteTask)),
		jsonRoute("GET", apiPath+"/deleted-tasks", read, s.listDeleted, "user_id", "after", "limit"),
		jsonRoute("POST", apiPath+"/tasks/{id}/override", admin, s.overrideTask),
		jsonRoute("GET", apiPath+"/workers", read, s.listWorkers, "all", "after", "limit"),
		jsonRoute("POST", apiPath+"/workers/{id}/drain", admin, withoutBody(s.drainWorker)),
		jsonRoute("GET", apiPath+"/pauses", read, s.listPauses),
		jsonRoute("POST", apiPath+"/pauses", admin, s.pause),
		jsonRoute("DELETE", apiPath+"/pauses", admin, s.resume, "stage", "host"),
		jsonRoute("GET", apiPath+"/stages", read, s.listStages),
		rawRoute("GET", apiPath+"/events", read, s.listEvents),
		jsonRoute("GET", apiPath+"/keys", admin, s.listKeys),
		jsonRoute("POST", apiPath+"/keys", admin, s.createKey),
		jsonRoute("DELETE", apiPath+"/keys/{id}", admin, s.revokeKey),
		jsonRoute("POST", apiPath+"/keys/{id}/disable", admin, withoutBody(s.disableKey)),
		jsonRoute("POST", apiPath+"/keys/{id}/enable", admin, withoutBody(s.enableKey)),
		jsonRoute("GET", apiPath+"/audit", admin, s.listAudit, "after", "limit"),
	}
}

// optionalRoutes lists the routes whose handlers are options.
func (s *Server) optionalRoutes() (routes []route) {
	for path, h := range map[string]http.Handler{"/healthz": s.opts.Healthy, "/readyz": s.opts.Ready} {
		if h != nil {
			routes = append(routes, rawRoute("GET", path, access.None, h.ServeHTTP))
		}
	}
	if s.opts.Metrics != nil {
		routes = append(routes, rawRoute("GET", "/metrics", access.Read, s.opts.Metrics.ServeHTTP))
	}
	if h := s.opts.Uploads; h != nil {
		for _, method := range []string{"OPTIONS", "POST", "PUT", "GET"} {
			routes = append(routes, rawRoute(method, apiPath+"/uploads/", access.Submit, h.ServeHTTP))
		}
		for _, method := range []string{"HEAD", "GET", "PATCH", "DELETE", "PUT", "OPTIONS", "POST"} {
			routes = append(routes, rawRoute(method, apiPath+"/uploads/{id}", access.Submit, h.ServeHTTP))
		}
	}
	return routes
}

// newMux serves the routes, 405 for other methods, 404 for other paths of the API, and the dashboard.
func (s *Server) newMux() *http.ServeMux {
	m := http.NewServeMux()
	base := s.opts.BasePath
	methods := make(map[string][]string)
	for _, r := range s.routes {
		path := r.path
		if strings.HasSuffix(path, "/") {
			path += "{$}"
		}
		m.Handle(r.method+" "+base+path, s.routeHandler(r))
		methods[path] = append(methods[path], r.method)
	}
	for path, allowed := range methods {
		if path == "/login" && s.opts.Dashboard != nil {
			continue // the dashboard serves GET /login
		}
		refuse := s.methodNotAllowed(allowed)
		// One pattern per method: a pattern for all methods conflicts with more general patterns for some methods.
		for _, method := range []string{"DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT"} {
			if !slices.Contains(allowed, method) {
				m.Handle(method+" "+base+path, refuse)
			}
		}
	}
	notFound := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.writeError(w, r, problem.New(problem.NotFound, "unknown path; /openapi.json lists all paths"))
	})
	m.Handle(base+"/api/", notFound)
	if s.opts.Dashboard != nil {
		m.Handle(base+"/", http.StripPrefix(base, s.dashboardHandler()))
	}
	if s.opts.Dashboard == nil || base != "" {
		m.Handle("/", notFound)
	}
	return m
}

func (s *Server) methodNotAllowed(allowed []string) http.Handler {
	allowed = slices.Clone(allowed)
	if slices.Contains(allowed, "GET") && !slices.Contains(allowed, "HEAD") {
		allowed = append(allowed, "HEAD")
	}
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", list)
		s.writeError(w, r, problem.New(problem.MethodNotAllowed, "method %s is not allowed; allowed: %s", r.Method, list))
	})
}

// routeHandler checks the scope, and for most routes the path and the query, and writes the response.
func (s *Server) routeHandler(rt route) http.Handler {
	serve := rt.serveHTTP
	if serve == nil {
		serve = s.serveJSON(rt)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := access.Check(r.Context(), rt.scope); err != nil {
			s.writeError(w, r, err)
			return
		}
		serve(w, r)
	})
}

func (s *Server) serveJSON(rt route) http.HandlerFunc {
	handle := s.limitRequests(requestWait, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
		defer cancel()
		response, err := rt.handle(w, r.WithContext(ctx))
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		s.respond(w, r, response)
	}))
	return func(w http.ResponseWriter, r *http.Request) {
		err := parseQuery(r, rt.query...).err
		if err == nil && strings.Contains(rt.path, "{id}") {
			_, err = parsePathID(r)
		}
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		handle.ServeHTTP(w, r)
	}
}

func (s *Server) getOpenAPI(w http.ResponseWriter, r *http.Request) {
	if p := parseQuery(r); p.err != nil {
		s.writeError(w, r, p.err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.openAPI)
}
