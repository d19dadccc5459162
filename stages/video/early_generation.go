package video

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// maxEarlyHeight is the largest rendition that is published early.
const maxEarlyHeight = 360

// earlyRungs returns the names of the rungs of the first generation, if the settings ask for one: a fast rendition, which
// is not the largest, and the audio. There is none for a video that is published already.
func (in Ingest) earlyRungs(ctx context.Context, job *stages.Job) (names []string, err error) {
	ladder := in.ladder()
	early := slices.IndexFunc(ladder, func(r media.Rung) bool {
		return !r.IsAudio() && min(r.Width, r.Height) <= maxEarlyHeight && r.Name != ladder[0].Name
	})
	if !in.Settings.WatchEarly || early < 0 {
		return nil, nil
	}
	if _, err := job.Results(ctx, publishStage); !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	for n, r := range ladder {
		if n == early || r.IsAudio() {
			names = append(names, r.Name)
		}
	}
	return names, nil
}

// publishEarly publishes the first generation of a video, whose transcode has only some renditions. It has no metadata.json
// and no poster yet.
func (c Config) publishEarly(ctx context.Context, job *stages.Job, taskDir string, in Ingest, tr Transcode) error {
	from, err := findResultDir(taskDir, transcodeStage, tr.Dir)
	if err != nil {
		return err
	}
	var as Assemble
	as.Dir, err = c.inWorkdir(ctx, job, taskDir, assembleStage, servedMode, func(job *stages.Job, dir string) error {
		l := linker{need: tr.Output.Bytes, reserve: c.reserve()}
		if err := l.add(ctx, from, dir, servedMode); err != nil {
			return fmt.Errorf("link renditions: %w", err)
		}
		if as.EncryptionKeyID, err = c.writeManifests(ctx, job, in, dir, tr.Output); err != nil {
			return err
		}
		as.Files, as.Bytes, err = measureTree(dir, func() {})
		return err
	})
	if err == nil && c.Bucket != nil {
		err = c.bucketResults().putEarly(ctx, job, tr, as)
	}
	if err != nil {
		return err
	}
	if _, err := c.publish(ctx, job, in, tr, Metadata{}, as); err != nil {
		return fmt.Errorf("publish early: %w", err)
	}
	return nil
}

// otherParts are the parts of those renditions that an early transcode does not have.
func (in Ingest) otherParts(early *Transcode) []stages.Part {
	var others []string
	for _, r := range in.ladder() {
		if !slices.ContainsFunc(early.Rungs, func(made media.Rung) bool { return made.Name == r.Name }) {
			others = append(others, r.Name)
		}
	}
	return in.parts(others, early)
}
