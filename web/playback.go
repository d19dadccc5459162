package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const (
	playPath = "/play"
	// defaultPlayback is how long an address is valid that is asked for without a time.
	defaultPlayback = 24 * time.Hour
	// maxPublicAge is how long proxies may serve a file of a video that is not public any more.
	maxPublicAge = time.Minute
)

var errNotPublic = problem.New(problem.NotFound, "no public video has this address; any other video needs a link for viewers")

// PlaybackPath returns the URL path of a published file of a task, such as master.m3u8: signed by a token, or without one, for a
// public video.
func PlaybackPath(basePath, token string, task store.ID, name string) string {
	return path.Join(basePath+playPath, token, task.String(), name)
}

func (s *Server) playbackRoutes() []route {
	// Files in directories of a public video match the first one, too: with two patterns that end in dots, the mux redirects.
	const signed, public = playPath + "/{token}/{id}/{path...}", playPath + "/{id}/{path}"
	return []route{
		jsonRoute("GET", apiPath+"/tasks/{id}/playback", access.Read, s.getPlayback, "expires_in"),
		rawRoute("GET", signed, access.None, s.servePlayback),
		rawRoute("OPTIONS", signed, access.None, answerPreflight),
		rawRoute("GET", public, access.None, s.servePublic),
		rawRoute("OPTIONS", public, access.None, answerPreflight),
	}
}

type playbackBody struct {
	HLS       string    `json:"hls"`
	DASH      string    `json:"dash,omitempty"` // an encrypted video has none
	MP4       string    `json:"mp4,omitempty"`
	Preview   string    `json:"preview,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero for a public video
}

// getPlayback returns addresses of a published video that need no key.
func (s *Server) getPlayback(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	age := defaultPlayback
	if text := r.URL.Query().Get("expires_in"); text != "" {
		n, err := strconv.Atoi(text)
		if age = time.Duration(n) * time.Second; err != nil || age < time.Second || age > playback.MaxAge {
			return jsonResponse{}, fmt.Errorf("%w: expires_in is %q; it must be seconds, 1 to %.0f",
				store.ErrInvalid, text, playback.MaxAge.Seconds())
		}
	}
	id := pathID(r)
	params, err := s.opts.Reads.Params(r.Context(), id)
	if err != nil {
		return jsonResponse{}, err
	}
	err = s.checkFile(r.Context(), id, media.MasterName)
	if errors.Is(err, errNoFile) {
		err = problem.New(problem.NotFound, "the video is not published yet")
	}
	if err != nil {
		return jsonResponse{}, err
	}
	dashErr := s.checkFile(r.Context(), id, media.ManifestName)
	if dashErr != nil && !errors.Is(dashErr, errNoFile) {
		return jsonResponse{}, dashErr
	}
	var body playbackBody
	token := ""
	if !video.IsPublic(params) {
		body.ExpiresAt = playback.Expiry(time.Now(), age)
		token = s.opts.PlaybackKeys.Sign(id, body.ExpiresAt)
	}
	address := func(name string) string { return s.origin(r) + PlaybackPath(s.opts.BasePath, token, id, name) }
	body.HLS = address(media.MasterName)
	if dashErr == nil {
		body.DASH = address(media.ManifestName)
	}
	err = s.addMP4s(r.Context(), id, &body, address)
	return jsonResponse{status: http.StatusOK, body: body}, err
}

// addMP4s adds the MP4 files of a video that has some: the result of the publish stage says in which generation.
func (s *Server) addMP4s(ctx context.Context, id store.ID, body *playbackBody, address func(name string) string) error {
	raw, err := s.opts.Reads.Result(ctx, id, "publish")
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	var published video.Publish
	if err == nil {
		err = json.Unmarshal(raw, &published)
	}
	for file, to := range map[string]*string{published.MP4: &body.MP4, published.Preview: &body.Preview} {
		if name, ok := strings.CutPrefix(file, id.String()+"/"); ok && err == nil {
			if err = s.checkFile(ctx, id, name); err == nil {
				*to = address(name)
			} else if errors.Is(err, errNoFile) {
				err = nil
			}
		}
	}
	return err
}

// origin is the public address of this server: the first of the configured ones, or that of the request.
func (s *Server) origin(r *http.Request) string {
	if len(s.opts.Origins) > 0 {
		return s.opts.Origins[0]
	}
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		return "https://" + r.Host
	}
	return "http://" + r.Host
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
	expires, err := s.opts.PlaybackKeys.Verify(id, r.PathValue("token"), time.Now())
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
