package playback

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// Video says how a published video is watched: its addresses and what a player shows. Of a version that was published early,
// before the publish stage completed, only HLS and Embed are known.
type Video struct {
	HLS  string `json:"hls"`
	DASH string `json:"dash,omitempty"` // an encrypted video has none
	// Embed is a page with a player, for an iframe.
	Embed string `json:"embed,omitempty"`
	// MP4 and Preview are files of the whole video and of a moment, if its settings ask for them. Poster and Storyboard are empty
	// without a picture. Storyboard and Chapters are WebVTT.
	MP4        string `json:"mp4,omitempty"`
	Preview    string `json:"preview,omitempty"`
	Poster     string `json:"poster,omitempty"`
	Storyboard string `json:"storyboard,omitempty"`
	Chapters   string `json:"chapters,omitempty"`
	// ExpiresAt is when the addresses end; zero for a public video, and for addresses that are not signed.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// PublishedAt is when the video was first published.
	PublishedAt time.Time `json:"published_at,omitzero"`
	// Duration is in seconds. Width and Height are those of the largest rendition, in pixels; 0 without a picture.
	Duration   float64                    `json:"duration,omitempty"`
	Width      int                        `json:"width,omitempty"`
	Height     int                        `json:"height,omitempty"`
	Renditions []video.PublishedRendition `json:"renditions,omitempty"`
	Captions   []Captions                 `json:"captions,omitempty"`
	Bytes      int64                      `json:"bytes,omitempty"` // of all files
}

// Captions are a text track. Default, Forced and SDH are those of [media.Captions].
type Captions struct {
	Language string `json:"language,omitempty"` // a BCP 47 tag; empty if unknown
	Name     string `json:"name"`
	Default  bool   `json:"default,omitempty"`
	Forced   bool   `json:"forced,omitempty"`
	SDH      bool   `json:"sdh,omitempty"`
	URL      string `json:"url"` // of a WebVTT file
}

// describe returns how a published video is watched. The function returns the address of a file, whose name is a path relative to
// the directory of published videos.
func describe(p video.Publish, address func(file string) string) *Video {
	optional := func(file string) string {
		if file == "" {
			return ""
		}
		return address(file)
	}
	v := &Video{
		HLS: address(p.Master), DASH: optional(p.Manifest), MP4: optional(p.MP4), Preview: optional(p.Preview), Poster: optional(p.Poster),
		Storyboard: optional(p.Storyboard), Chapters: optional(p.Chapters),
		PublishedAt: p.PublishedAt, Duration: p.Duration, Renditions: p.Renditions, Bytes: p.Bytes,
	}
	for _, r := range p.Renditions {
		if r.Height > v.Height {
			v.Width, v.Height = r.Width, r.Height
		}
	}
	for _, c := range p.Captions {
		v.Captions = append(v.Captions, Captions{
			c.Language, c.Name, c.Default, c.Forced, c.SDH, address(path.Join(p.Generation, c.Dir, media.CaptionsFile)),
		})
	}
	return v
}

// Addresses finds how videos are watched with the addresses of a server, for everybody who has them.
type Addresses struct {
	// Keys sign the addresses of videos that are not public.
	Keys *Keys
	// URL is the public address of the server, such as "https://media.example"; the paths begin after it. Empty: addresses are
	// paths.
	URL string
	// Valid is how long addresses are valid at least. Default: a day.
	Valid time.Duration
	// IsThere reports whether a published file exists, to find versions that were published early. Default: none is found.
	IsThere func(ctx context.Context, file string) (bool, error)

	until time.Time // zero: Valid from now on
}

// Until returns addresses that are valid until a time, if that is not zero.
func (a Addresses) Until(t time.Time) Addresses {
	a.until = t
	return a
}

const defaultValid = 24 * time.Hour

// publishStage is the stage of the video pipeline with the result [video.Publish].
const publishStage = "publish"

// playPath and embedPath are where the server has the files of published videos, and pages with a player.
const playPath, embedPath = "/play", "/embed"

// of returns how a published video is watched, given the params of its task.
func (a Addresses) of(task store.ID, params json.RawMessage, p video.Publish) *Video {
	token, expires := "", time.Time{}
	if !video.IsPublic(params) {
		if expires = a.until; expires.IsZero() {
			expires = Expiry(time.Now(), cmp.Or(a.Valid, defaultValid))
		}
		token = a.Keys.Sign(task, expires)
	}
	v := describe(p, func(file string) string {
		return a.URL + path.Join(playPath, token, task.String(), strings.TrimPrefix(file, task.String()+"/"))
	})
	v.Embed, v.ExpiresAt = a.URL+path.Join(embedPath, token, task.String()), expires
	return v
}

// Find returns how tasks are watched, by their ids: those whose publish stage was ever completed, and those that were published
// early. Without Keys it finds none.
func (a Addresses) Find(ctx context.Context, st *store.Store, tasks ...store.Task) (map[store.ID]*Video, error) {
	if a.Keys == nil {
		return nil, nil
	}
	ids := make([]store.ID, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	results, err := published(ctx, st, ids...)
	if err != nil {
		return nil, err
	}
	found := make(map[store.ID]*Video, len(results))
	for _, t := range tasks {
		p, ok := results[t.ID]
		if !ok && a.IsThere != nil && video.IsWatchedEarly(t.Params) {
			p.Master = path.Join(t.ID.String(), media.MasterName)
			if ok, err = a.IsThere(ctx, p.Master); err != nil {
				return nil, err
			}
		}
		if ok {
			found[t.ID] = a.of(t.ID, t.Params, p)
		}
	}
	return found, nil
}

// published returns the results of the publish stage of tasks, the latest of each, by their ids.
func published(ctx context.Context, st *store.Store, tasks ...store.ID) (map[store.ID]video.Publish, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	results, err := st.Results(ctx, publishStage, tasks...)
	if err != nil {
		return nil, err
	}
	parsed := make(map[store.ID]video.Publish, len(results))
	for id, raw := range results {
		var p video.Publish
		if json.Unmarshal(raw, &p) == nil && p.Master != "" { // otherwise, it is that of another pipeline
			parsed[id] = p
		}
	}
	return parsed, nil
}

// DescribeEvents returns events of which those of type completed say how the videos are watched, as the member playback of their
// data. Events that have data remain as they are. It does not change its argument.
func (a Addresses) DescribeEvents(ctx context.Context, st *store.Store, events []store.Event) ([]store.Event, error) {
	var completed []store.ID
	for _, e := range events {
		if isDescribable(e) {
			completed = append(completed, e.Task)
		}
	}
	if a.Keys == nil || len(completed) == 0 {
		return events, nil
	}
	results, err := published(ctx, st, completed...)
	if err != nil || len(results) == 0 {
		return events, err
	}
	described := slices.Clone(events)
	for i, e := range events {
		p, ok := results[e.Task]
		if !ok || !isDescribable(e) {
			continue
		}
		params, err := st.Params(ctx, e.Task)
		if errors.Is(err, store.ErrNotFound) {
			continue // it was deleted since
		}
		if err == nil {
			described[i].Data, err = json.Marshal(map[string]any{"playback": a.of(e.Task, params, p)})
		}
		if err != nil {
			return events, err
		}
	}
	return described, nil
}

func isDescribable(e store.Event) bool { return e.Type == store.TaskCompleted && len(e.Data) == 0 }

// Store is a store whose events of type completed say how the videos are watched.
type Store struct {
	*store.Store
	Addresses Addresses
}

// Events reads events as [store.Store.Events] does.
func (s Store) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	events, err := s.Store.Events(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.Addresses.DescribeEvents(ctx, s.Store, events)
}
