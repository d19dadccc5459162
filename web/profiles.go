package web

import (
	"encoding/json"
	"net/http"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/profiles"
)

func (s *Server) profileRoutes() []route {
	const all, one = apiPath + "/profiles", apiPath + "/profiles/{name}"
	return []route{
		jsonRoute("GET", all, access.Read, s.listProfiles),
		jsonRoute("GET", one, access.Read, s.getProfile),
		jsonRoute("PUT", one, access.Admin, s.setProfile),
		jsonRoute("DELETE", one, access.Admin, withoutBody(s.removeProfile)),
	}
}

func (s *Server) listProfiles(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	all, err := profiles.New(s.opts.Reads).List(r.Context())
	return listResponse("profiles", all, err)
}

func (s *Server) getProfile(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return okResponse(profiles.New(s.opts.Reads).Get(r.Context(), r.PathValue("name")))
}

func (s *Server) setProfile(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var definition json.RawMessage // its members are checked with those of params
	if err := decode(w, r, maxParams, false, &definition); err != nil {
		return jsonResponse{}, err
	}
	return okResponse(s.actions().SetProfile(r.Context(), r.PathValue("name"), definition))
}

func (s *Server) removeProfile(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return noContentResponse(s.actions().RemoveProfile(r.Context(), r.PathValue("name")))
}
