package video

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// The names of what the metadata stage makes, also where it is published.
const (
	metadataFile  = "metadata.json"
	posterFile    = "poster.jpg"
	storyboardDir = media.StoryboardDir
)

// Metadata is the result of the metadata stage.
type Metadata struct {
	// Dir holds the files, relative to the task's directory.
	Dir string `json:"dir"`
	Description
}

// Description is what metadata.json says. It is published, so it has nothing
// of the source's name or of where the source came from.
type Description struct {
	// Info is what is in the source.
	Info *media.Info `json:"info"`
	// Poster is the poster's file name, empty if there is no picture.
	Poster string `json:"poster,omitempty"`
	// Storyboard is in the folder "storyboard"; nil if there is no picture, and in
	// the result of stage metadata since transcode makes it.
	Storyboard *media.Storyboard `json:"storyboard,omitempty"`
	// Damage is what of the source is missing in the renditions; nil if nothing
	// is.
	Damage *media.Damage `json:"damage,omitempty"`
	// Warnings are sentences about what could not be made, or not well.
	Warnings []string `json:"warnings,omitempty"`
}

// Metadata is the stage that describes the source: metadata.json and a poster.
// Sound without a picture has only the first. The storyboard comes from transcode,
// which has to decode every frame anyway.
func (c Config) Metadata() stages.Stage {
	c = c.withCache()
	return stages.Stage{
		Name: metadataStage, Needs: []string{ingestStage}, Workers: cmp.Or(c.Workers.Metadata, 2),
		Stall: c.stall(),
		Work: work(c, func(ctx context.Context, job *stages.Job) (Metadata, error) {
			in, err := stages.Result[Ingest](ctx, job, ingestStage)
			if err != nil {
				return Metadata{}, err
			}
			return c.metadata(ctx, job, in)
		}),
	}
}

func (c Config) metadata(ctx context.Context, job *stages.Job, in Ingest) (Metadata, error) {
	dir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Metadata{}, err
	}
	source, err := in.readableSource(dir)
	if err != nil {
		return Metadata{}, err
	}
	w, err := newWorkdir(ctx, job, dir, metadataStage, privateMode)
	if err != nil {
		return Metadata{}, err
	}
	defer w.discard()
	job = w.withTouch(job)

	d, err := c.describe(ctx, job, source, in.Info, w.path)
	if err != nil {
		return Metadata{}, err
	}
	if err := d.write(w.path); err != nil {
		return Metadata{}, err
	}
	name, err := w.finish(ctx, job)
	if err != nil {
		return Metadata{}, err
	}
	removeOlder(ctx, job, dir, filepath.Dir(in.File))
	return Metadata{Dir: name, Description: d}, nil
}

// write writes metadata.json, which must not be there.
func (d Description) write(dir string) error {
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("write description: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, metadataFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, servedFileMode)
	if err != nil {
		return fmt.Errorf("write description: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write description: %w", err)
	}
	return nil
}

// describe takes what ingest found out, to spare reading the source once more. It
// probes by itself after an upgrade, so that this stage can be run again alone.
func (c Config) describe(ctx context.Context, job *stages.Job, source string, info *media.Info, dir string) (d Description, err error) {
	if info.Version != media.InfoVersion {
		if info, err = c.tools(job, -1, "probing").Probe(ctx, source); err != nil {
			return Description{}, err
		}
	}
	d.Info = info
	err = c.tools(job, -1, "poster").Poster(ctx, source, info, filepath.Join(dir, posterFile))
	if err == nil {
		d.Poster = posterFile
	} else if err = d.warnIfRejected("poster", err); err != nil {
		return Description{}, err
	}
	return d, nil
}

// warnIfRejected accepts that a picture cannot be made. Whether the source can be
// published without is for transcode to find out, not decided here.
func (d *Description) warnIfRejected(what string, err error) error {
	if errors.Is(err, media.ErrNoPicture) {
		return nil
	}
	var refused *media.RejectedError
	if !errors.As(err, &refused) {
		return fmt.Errorf("make %s: %w", what, err)
	}
	d.Warnings = append(d.Warnings, fmt.Sprintf("there is no %s: %s", what, refused.Reason))
	return nil
}
