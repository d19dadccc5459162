package video

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// delivery is what a claim of a remote worker makes: a poster and captions, or a part of a transcode.
type delivery struct {
	name  string // of its directory, without a number
	in    Ingest
	rungs []media.Rung
	spec  chunkSpec
	// isLast: no other attempt follows.
	isLast bool
}

// delivery returns what a claim makes, if remote workers may do it.
func (f *RemoteFiles) delivery(ctx context.Context, c engine.Claim) (d delivery, err error) {
	switch stage := store.Video().Stages()[c.Stage]; {
	case stage == metadataStage:
		d.name = metadataStage
		d.in, err = f.ingest(ctx, c.Task)
		return d, err
	case stage != transcodeStage || c.Part == 0:
		return d, refused("stage %s has no files for remote workers", stage)
	}
	if err := json.Unmarshal(c.Spec, &d.spec); err != nil {
		return d, refused("the spec of part %d is invalid", c.Part)
	}
	d.name, d.isLast = chunkPrefix, c.Attempt >= cmp.Or(f.MaxAttempts, 3)
	if d.isWhole() {
		d.name = transcodeStage
	}
	if d.in, err = f.ingest(ctx, c.Task); err != nil {
		return d, err
	}
	if d.rungs = d.spec.rungs(d.in); !d.isWhole() && d.in.Chunks == nil {
		return d, refused("the source is not divided")
	}
	return d, nil
}

func (d delivery) isMetadata() bool { return d.name == metadataStage }

func (d delivery) isWhole() bool { return d.spec.Makes == makesWhole }

// maxBytes is how many bytes a file may have; 0 if it is not delivered. Playlists, storyboards and metadata.json
// are made here.
func (d delivery) maxBytes(name string) int64 {
	switch {
	case d.isMetadata() && name == posterFile:
		return maxPosterBytes
	case d.isMetadata() && media.IsSourceCaptions(d.in.Info, name):
		return media.MaxCaptionsBytes
	case d.isMetadata():
		return 0
	case d.isWhole():
		return media.MaxFileBytes(d.in.Info, d.rungs, name)
	}
	return media.MaxChunkFileBytes(d.in.Info, d.rungs, d.in.Chunks, d.spec.piece(), name)
}

// maxTotal is how many bytes all files may have.
func (d delivery) maxTotal() int64 {
	switch {
	case d.isMetadata():
		return maxPosterBytes + int64(len(d.in.Info.Subtitles))*media.MaxCaptionsBytes
	case d.isWhole():
		return media.MaxTotalBytes(d.in.Info, d.rungs)
	}
	return media.MaxChunkTotalBytes(d.in.Info, d.rungs, d.in.Chunks, d.spec.piece())
}
