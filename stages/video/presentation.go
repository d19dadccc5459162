package video

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"time"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Presentation is what a player shows of a published video. Results of earlier versions have none.
type Presentation struct {
	// PublishedAt is when the video was first published.
	PublishedAt time.Time `json:"published_at,omitzero"`
	// Duration is in seconds.
	Duration float64 `json:"duration,omitempty"`
	// Renditions are those with a picture, in the order of the master playlist.
	Renditions []PublishedRendition `json:"renditions,omitempty"`
	// Captions are in directories of the generation.
	Captions []media.Captions `json:"captions,omitempty"`
	// Chapters is a WebVTT file in the generation; empty if there are none.
	Chapters string `json:"chapters,omitempty"`
}

// PublishedRendition is one size of a picture, in pixels.
type PublishedRendition struct {
	Name      string  `json:"name"`
	Width     int     `json:"width"`
	Height    int     `json:"height"`
	FrameRate float64 `json:"frame_rate"`
	Codecs    string  `json:"codecs"`        // as RFC 6381 defines, such as "avc1.64001f"
	HDR       string  `json:"hdr,omitempty"` // "pq" or "hlg"
	Bandwidth int64   `json:"bandwidth"`     // the highest, in bits per second
}

func newPresentation(generation string, tr Transcode, as Assemble) Presentation {
	p := Presentation{Duration: tr.Output.Duration, Captions: as.Captions}
	for _, r := range tr.Output.Video {
		p.Renditions = append(p.Renditions, PublishedRendition{
			Name: r.Name, Width: r.Width, Height: r.Height, FrameRate: r.FrameRate, Codecs: r.Codecs, HDR: r.HDR, Bandwidth: r.PeakBandwidth,
		})
	}
	if len(as.Chapters) > 0 {
		p.Chapters = path.Join(generation, media.ChaptersName)
	}
	return p
}

// firstPublished returns when a video was first published: now, unless an earlier result says it.
func firstPublished(ctx context.Context, job *stages.Job) (time.Time, error) {
	raw, err := job.Results(ctx, publishStage)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return time.Time{}, err
	}
	var before Publish
	if json.Unmarshal(raw, &before) == nil && !before.PublishedAt.IsZero() {
		return before.PublishedAt, nil
	}
	return time.Now().UTC().Truncate(time.Millisecond), nil // an older version did not say it
}
