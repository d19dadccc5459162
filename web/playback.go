package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/embed"
)

const (
	playPath = "/play"
	// playerPath is where the files of the player are.
	playerPath = "/player/"
	// maxPublicAge is how long proxies may serve a file of a video that is not public any more.
	maxPublicAge = time.Minute
)

var errNotPublic = problem.New(problem.NotFound, "no public video has this address; any other video needs a link for viewers")

func (s *Server) playbackRoutes() []route {
	// Files in directories of a public video match the first one, too: with two patterns that end in dots, the mux redirects.
	const signed, public = playPath + "/{token}/{id}/{path...}", playPath + "/{id}/{path}"
	return []route{
		jsonRoute("GET", apiPath+"/tasks/{id}/playback", access.Read, s.getPlayback, "expires_in"),
		rawRoute("GET", signed, access.None, s.servePlayback),
		rawRoute("OPTIONS", signed, access.None, answerPreflight),
		rawRoute("GET", public, access.None, s.servePublic),
		rawRoute("OPTIONS", public, access.None, answerPreflight),
		rawRoute("GET", "/embed/{id}", access.None, s.serveEmbed),
		rawRoute("GET", "/embed/{token}/{id}", access.None, s.serveEmbed),
		rawRoute("GET", playerPath+"{name...}", access.None, s.player.ServeHTTP),
	}
}

// getPlayback returns how a published video is watched, with addresses that need no key.
func (s *Server) getPlayback(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	a := s.addresses(r)
	if text := r.URL.Query().Get("expires_in"); text != "" {
		n, err := strconv.Atoi(text)
		if a.Valid = time.Duration(n) * time.Second; err != nil || a.Valid < time.Second || a.Valid > playback.MaxAge {
			return jsonResponse{}, fmt.Errorf("%w: expires_in is %q; it must be seconds, 1 to %.0f",
				store.ErrInvalid, text, playback.MaxAge.Seconds())
		}
	}
	t, err := s.opts.Reads.Get(r.Context(), pathID(r))
	if err != nil {
		return jsonResponse{}, err
	}
	found, err := a.Find(r.Context(), s.opts.Reads, t)
	if err == nil && found[t.ID] == nil {
		err = problem.New(problem.NotFound, "the video is not published yet")
	}
	return okResponse(found[t.ID], err)
}

// addresses are those of published videos for the client of a request; without keys if none are served.
func (s *Server) addresses(r *http.Request) (a playback.Addresses) {
	if s.opts.Playback != nil {
		a = *s.opts.Playback
	}
	a.URL = s.publicURL(r)
	return a
}

// publicURL is the public address of this server: the configured one, or that of the request.
func (s *Server) publicURL(r *http.Request) string {
	if s.opts.PublicURL != "" {
		return s.opts.PublicURL
	}
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		return "https://" + r.Host + s.opts.BasePath
	}
	return "http://" + r.Host + s.opts.BasePath
}

// servePlayback serves a published file to anybody who has a signed address, also to pages of other sites and to proxies.
func (s *Server) servePlayback(w http.ResponseWriter, r *http.Request) {
	if _, err := store.ParseID(r.PathValue("token")); err == nil { // no token, and the file is in a directory of the video's
		r.SetPathValue("path", r.PathValue("id")+"/"+r.PathValue("path"))
		r.SetPathValue("id", r.PathValue("token"))
		s.servePublic(w, r)
		return
	}
	id, err := parsePathID(r)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	expires, err := s.opts.Playback.Keys.Verify(id, r.PathValue("token"), time.Now())
	if err != nil {
		s.writeError(w, r, problem.New(problem.Forbidden, "%v", err))
		return
	}
	setCORS(w.Header())
	s.serveFile(w, r, "public", min(time.Until(expires), maxFileAge))
}

// servePublic serves a published file of a public video, as servePlayback does.
func (s *Server) servePublic(w http.ResponseWriter, r *http.Request) {
	if err := s.checkPublic(r); err != nil {
		s.writeError(w, r, err)
		return
	}
	setCORS(w.Header())
	s.serveFile(w, r, "public", maxPublicAge)
}

// serveEmbed serves the page with the player of a public video, or of one whose address is signed.
func (s *Server) serveEmbed(w http.ResponseWriter, r *http.Request) {
	page, err := s.embedPage(r)
	status := http.StatusOK
	if err != nil {
		p := problemOf(err)
		status, page = p.Status(), embed.Page{Error: p.Detail}
	}
	if err := s.player.Write(w, status, page); err != nil {
		s.writeError(w, r, err)
	}
}

func (s *Server) embedPage(r *http.Request) (page embed.Page, err error) {
	id, err := parsePathID(r)
	if err != nil {
		return page, errNotPublic
	}
	a := s.addresses(r)
	a.URL = s.opts.BasePath // of this server, whatever its public address
	var expires time.Time
	if token := r.PathValue("token"); token != "" {
		if expires, err = a.Keys.Verify(id, token, time.Now()); err != nil {
			return page, problem.New(problem.Forbidden, "%v", err)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
	defer cancel()
	release, err := s.requestLimit.acquire(ctx, "the public", requestWait)
	if err != nil {
		return page, err
	}
	defer release()
	task, err := s.opts.Store.Get(ctx, id)
	isPublic := err == nil && video.IsPublic(task.Params)
	if errors.Is(err, store.ErrNotFound) || err == nil && !isPublic && expires.IsZero() {
		return page, errNotPublic
	}
	var found map[store.ID]*playback.Video
	if err == nil {
		found, err = a.Until(expires).Find(ctx, s.opts.Store, task)
	}
	if err == nil && found[id] == nil {
		err = problem.New(problem.NotFound, "the video is not published yet")
	}
	return embed.Page{Title: task.Title(), Video: found[id]}, err
}

// checkPublic returns errNotPublic unless the video in the path is public: the same for a signed, a deleted and an unknown one.
// It reads one row of the primary server by its key. A cache or a standby would serve a video that is not public any more.
func (s *Server) checkPublic(r *http.Request) error {
	id, err := parsePathID(r)
	if err != nil {
		return errNotPublic
	}
	ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
	defer cancel()
	release, err := s.requestLimit.acquire(ctx, "the public", requestWait)
	if err != nil {
		return err
	}
	defer release()
	params, err := s.opts.Store.Params(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !video.IsPublic(params) {
		return errNotPublic
	}
	return err
}

// answerPreflight answers the question of a browser whether a page of another site may ask for parts of a file.
func answerPreflight(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	setCORS(h)
	h.Set("Access-Control-Allow-Methods", "GET, HEAD")
	h.Set("Access-Control-Allow-Headers", "Range, If-Match, If-None-Match, If-Modified-Since, If-Range")
	h.Set("Access-Control-Max-Age", "86400")
	w.WriteHeader(http.StatusNoContent)
}

func setCORS(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Content-Length, Content-Range, ETag")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
}
