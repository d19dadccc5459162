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
	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/stages"
)

// These are the names of the metadata stage's files, also in the published
// directory.
const (
	metadataFile = "metadata.json"
	posterFile   = "poster.jpg"
)

// Metadata is the result of the metadata stage.
type Metadata struct {
	// Dir holds the files, relative to the task's directory.
	Dir string `json:"dir"`
	Description
}

// Description is the content of metadata.json. It is published, so it contains
// neither the source's name nor its location.
type Description struct {
	// Info describes the source.
	Info *media.Info `json:"info"`
	// Poster is the poster's file name; empty if there is no picture.
	Poster string `json:"poster,omitempty"`
	MP4Names
	// Storyboard is in the directory "storyboard"; nil if there is no picture, and in the result of the metadata stage, because
	// transcode makes it.
	Storyboard *media.Storyboard `json:"storyboard,omitempty"`
	// Captions are the text tracks; each is in a directory of its own.
	Captions []media.Captions `json:"captions,omitempty"`
	// Chapters are also in chapters.vtt and chapters.json. The metadata stage leaves them to assemble: those of the source are in Info.
	Chapters []captions.Chapter `json:"chapters,omitempty"`
	// Damage is what the renditions lack; nil if nothing.
	Damage *media.Damage `json:"damage,omitempty"`
	// Warnings are sentences about what could not be made, or not well.
	Warnings []string `json:"warnings,omitempty"`
}

// Metadata returns the stage that describes the source: metadata.json, a poster if there is a
// picture, and the captions of its text subtitles. The storyboard comes from transcode, which
// decodes every frame anyway.
func (c Config) Metadata() stages.Stage {
	c = c.withCache()
	return stages.Stage{
		Name: metadataStage, Needs: []string{ingestStage}, Slots: cmp.Or(c.Slots.Metadata, 2), Stall: c.stall(),
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
	taskDir, err := c.findTaskDir(job.Task)
	if err != nil {
		return Metadata{}, err
	}
	source, err := c.readableSource(in, taskDir)
	if err != nil {
		return Metadata{}, err
	}
	var d Description
	name, err := c.inWorkdir(ctx, job, taskDir, metadataStage, privateMode, func(job *stages.Job, dir string) error {
		if d, err = c.describe(ctx, job, source, in, dir); err != nil {
			return err
		}
		return d.write(dir)
	})
	if err != nil {
		return Metadata{}, err
	}
	removeOlder(ctx, job, taskDir, filepath.Dir(in.File))
	return Metadata{Dir: name, Description: d}, nil
}

// describe uses ingest's Info, to avoid reading the source again. It probes only
// if a version with another InfoVersion made that, so that after an upgrade this
// stage can run again alone. Of a part of the source it uses what there is.
func (c Config) describe(
	ctx context.Context, job *stages.Job, source string, in Ingest, dir string,
) (d Description, err error) {
	info := in.Info
	if info.Version != media.InfoVersion && info.Range == nil {
		if info, err = c.tools(job, -1, "probing").Probe(ctx, source); err != nil {
			return Description{}, err
		}
	}
	d.Info = info
	tools, file := c.tools(job, -1, "poster"), filepath.Join(dir, posterFile)
	if info.Video != nil && in.Settings.Poster != "" {
		err = tools.PosterAt(ctx, source, info, timeAt(in.Settings.Poster, info.Video.Duration), file)
	} else {
		err = tools.Poster(ctx, source, info, file)
	}
	var rejected *media.RejectedError
	switch {
	case err == nil:
		d.Poster = posterFile
	case errors.Is(err, media.ErrNoPicture):
	case errors.As(err, &rejected):
		// Transcode decides whether the source can be published without a poster.
		d.Warnings = append(d.Warnings, "there is no poster: "+rejected.Reason)
	default:
		return Description{}, err
	}
	tracks, warnings, err := c.tools(job, -1, "captions").SourceCaptions(ctx, source, info, dir)
	if err != nil {
		return Description{}, err
	}
	d.Captions, d.Warnings = tracks, append(d.Warnings, warnings...)
	return d, nil
}

// write writes metadata.json, which must not exist.
func (d Description) write(dir string) error {
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", metadataFile, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, metadataFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, servedFileMode)
	if err != nil {
		return fmt.Errorf("write %s: %w", metadataFile, err)
	}
	_, err = f.Write(append(raw, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", metadataFile, err)
	}
	return nil
}
