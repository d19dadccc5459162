package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/store"
)

func (s *Server) captionRoutes() []route {
	const all = apiPath + "/tasks/{id}/captions"
	return []route{
		jsonRoute("GET", all, access.Read, s.listCaptions),
		jsonRoute("POST", all, access.Admin, s.addCaptions, "file", "language", "name", "default", "forced", "sdh", "chapters"),
		jsonRoute("DELETE", all+"/{captions}", access.Admin, withoutBody(s.removeCaptions)),
	}
}

func (s *Server) listCaptions(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	if _, err := s.opts.Reads.Get(r.Context(), pathID(r)); err != nil {
		return jsonResponse{}, err
	}
	all, err := attached.New(s.opts.Reads).List(r.Context(), pathID(r))
	return listResponse("captions", all, err)
}

// addCaptions attaches the file in the body, whose name says its format.
func (s *Server) addCaptions(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	q := parsedQuery(r)
	f := attached.File{
		Language: q.text("language"), Name: q.text("name"),
		Default: q.flag("default"), Forced: q.flag("forced"), SDH: q.flag("sdh"), Chapters: q.flag("chapters"),
	}
	if q.err != nil {
		return jsonResponse{}, q.err
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, captions.MaxBytes))
	if _, isTooLarge := errors.AsType[*http.MaxBytesError](err); isTooLarge {
		err = fmt.Errorf("%w: captions have at most %d bytes", store.ErrInvalid, captions.MaxBytes)
	}
	if err != nil {
		return jsonResponse{}, err
	}
	added, err := s.actions().AddCaptions(r.Context(), pathID(r), q.text("file"), data, f)
	return jsonResponse{status: http.StatusCreated, body: added}, err
}

func (s *Server) removeCaptions(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	id, err := store.ParseID(r.PathValue("captions"))
	if err != nil {
		return jsonResponse{}, store.ErrNotFound
	}
	return noContentResponse(s.actions().RemoveCaptions(r.Context(), pathID(r), id))
}
