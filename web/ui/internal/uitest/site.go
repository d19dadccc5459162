package uitest

import (
	"context"
	"image/jpeg"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/browsertest"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/embed"
	"github.com/cuelight/cuelight/web/ui"
)

// Site is a dashboard with the other routes that its pages need.
type Site struct {
	UI        *ui.UI
	ReadOnly  atomic.Bool // the viewer has no permissions
	SignedOut atomic.Bool // requests are unauthenticated
	feed      *eventfeed.Feed
	mux       *http.ServeMux
}

// NewSite creates a site over a store. Media serves the published files of one task; it
// may be nil.
func NewSite(st *store.Store, published store.ID, media http.Handler) (*Site, error) {
	s := &Site{mux: http.NewServeMux(), feed: eventfeed.New(eventfeed.Options{
		Reader: st, PollInterval: 50 * time.Millisecond,
	})}
	var err error
	s.UI, err = ui.New(ui.Options{
		Store: ui.NewReader(st), Actions: Actions(st), Version: "v0.6.0", Uploads: "/uploads", Logout: "/logout",
		Viewer: func(context.Context) ui.Viewer {
			return ui.Viewer{Name: "operator", Submit: !s.ReadOnly.Load(), Operate: !s.ReadOnly.Load()}
		},
		Subscribe: func(keep func(store.Event) bool) ui.Subscription { return s.feed.Subscribe(eventfeed.Now, keep) },
		Captions:  attached.New(st).List,
		Profiles:  Profiles, SettingsOf: func(t store.Task) (profile, settings string) { return "mobile", "quality 28" },
		Playback: func(_ context.Context, tasks ...store.Task) (map[store.ID]*playback.Video, error) {
			found := map[store.ID]*playback.Video{}
			for _, t := range tasks {
				if v := playbackOf(published, media != nil, t); v != nil {
					found[t.ID] = v
				}
			}
			return found, nil
		},
	})
	if err != nil {
		return nil, err
	}
	player, err := embed.New("/player/")
	if err != nil {
		return nil, err
	}
	s.mux.Handle("/", s.UI)
	s.mux.Handle("GET /player/{name...}", player)
	s.mux.HandleFunc("GET /embed/{id}", func(w http.ResponseWriter, r *http.Request) {
		page := embed.Page{Error: "the video is not published yet"}
		if id, err := store.ParseID(r.PathValue("id")); err == nil {
			task, err := st.Get(r.Context(), id)
			if found := playbackOf(published, media != nil, task); err == nil && found != nil {
				page = embed.Page{Title: task.Title(), Video: found}
			}
		}
		_ = player.Write(w, http.StatusOK, page)
	})
	s.mux.HandleFunc("GET /posters/{name}", poster)
	if media != nil {
		s.mux.Handle("GET /published/", http.StripPrefix("/published", media))
	}
	return s, nil
}

// playbackOf returns how a completed task is watched; one of them has media.
func playbackOf(published store.ID, hasMedia bool, t store.Task) *playback.Video {
	if t.Status != store.StatusCompleted {
		return nil
	}
	v := &playback.Video{
		HLS: "/published/none/master.m3u8", Embed: "/embed/" + t.ID.String(), Poster: "/posters/" + t.ID.String() + ".jpg",
		Duration: 754, Width: 1920, Height: 1080, Bytes: 345 << 20, ExpiresAt: time.Now().Add(time.Hour),
	}
	if t.ID == published && hasMedia {
		v.HLS, v.Duration = "/published/master.m3u8", 5
	}
	return v
}

// Actions returns the actions of an operator.
func Actions(st *store.Store) ops.Actions {
	return ops.Actions{Store: st, Authorize: func(context.Context, access.Scope) (string, error) { return "operator", nil }}
}

// Profiles returns two profiles.
func Profiles(context.Context) ([]ui.Profile, error) {
	at := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	return []ui.Profile{
		{Name: "default"}, {Name: "mobile", Settings: "renditions 480p 240p, quality 28", UpdatedAt: &at, UpdatedBy: "operator"},
	}, nil
}

// Run updates open pages until ctx is done.
func (s *Site) Run(ctx context.Context) error {
	var both errgroup.Group
	both.Go(func() error { return s.feed.Run(ctx) })
	both.Go(func() error { return s.UI.Run(ctx) })
	return both.Wait()
}

// ServeHTTP serves the dashboard, the posters and the media.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.SignedOut.Load() && !strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Handle adds a route.
func (s *Site) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// poster draws a landscape, a different one for each name.
func poster(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSuffix(r.PathValue("name"), ".jpg")
	if len(name) != 36 {
		http.NotFound(w, r)
		return
	}
	var seed float64
	for _, c := range name[24:] {
		seed = math.Mod(seed*31+float64(c), 9973)
	}
	w.Header().Set("Content-Type", "image/jpeg")
	w.Header().Set("Cache-Control", "max-age=60")
	_ = jpeg.Encode(w, browsertest.Landscape(seed, 320, 180), &jpeg.Options{Quality: 88}) // the client may be gone
}
