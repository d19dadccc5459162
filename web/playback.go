package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

const (
	playPath = "/play"
	// defaultPlayback is how long an address is valid that is asked for without a time.
	defaultPlayback = 24 * time.Hour
)

// PlaybackPath returns the signed URL path of a published file of a task, such as master.m3u8.
func PlaybackPath(basePath, token string, task store.ID, name string) string {
	return basePath + playPath + "/" + token + "/" + task.String() + "/" + name
}

func (s *Server) playbackRoutes() []route {
	const signed = playPath + "/{token}/{id}/{path...}"
	return []route{
		jsonRoute("GET", apiPath+"/tasks/{id}/playback", access.Read, s.getPlayback, "expires_in"),
		rawRoute("GET", signed, access.None, s.servePlayback),
		rawRoute("OPTIONS", signed, access.None, answerPreflight),
	}
}

type playbackBody struct {
	HLS       string    `json:"hls"`
	DASH      string    `json:"dash"`
	ExpiresAt time.Time `json:"expires_at"`
}

// getPlayback returns signed addresses of a published video.
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
	if _, err := s.opts.Reads.Get(r.Context(), id); err != nil {
		return jsonResponse{}, err
	}
	f, err := s.openPublishedFile(r.Context(), id, "master.m3u8")
	if errors.Is(err, errNoFile) {
		err = problem.New(problem.NotFound, "the video is not published yet")
	}
	if err != nil {
		return jsonResponse{}, err
	}
	f.Close()
	body := playbackBody{ExpiresAt: playback.Expiry(time.Now(), age)}
	token := s.opts.PlaybackKeys.Sign(id, body.ExpiresAt)
	origin := s.origin(r)
	body.HLS = origin + PlaybackPath(s.opts.BasePath, token, id, "master.m3u8")
	body.DASH = origin + PlaybackPath(s.opts.BasePath, token, id, "manifest.mpd")
	return jsonResponse{status: http.StatusOK, body: body}, nil
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
