package video

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// publishToBucket publishes the assembled files in PublishBucket: the generation first, as an
// artifact, then the two manifests at the stable address, each by one conditional write. A
// player gets the old or the new manifest, and both refer to complete generations.
func (c Config) publishToBucket(
	ctx context.Context, job *stages.Job, tr Transcode, md Metadata, as Assemble,
) (Publish, error) {
	taskDir, err := c.makeTaskDir(job.Task)
	if err != nil {
		return Publish{}, err
	}
	p := &bucketPublish{
		config: c, location: c.PublishLocation(), bucket: c.PublishBucket.storage, task: job.Task, mine: as,
	}
	if p.stable, err = p.location.readStable(ctx, p.task); err != nil {
		return Publish{}, err
	}
	stored, err := p.bucket.ListArtifacts(ctx, p.task.String())
	if err != nil {
		return Publish{}, err
	}
	p.generation = dirName{stage: generationPrefix, number: p.newest(stored) + 1, random: randomName()}
	if err := p.copyGeneration(ctx, job, taskDir); err != nil {
		return Publish{}, err
	}
	job.Progress(stages.Progress{Percent: -1, Note: "switching"})
	if err := p.replaceStable(ctx, job, taskDir); err != nil {
		return Publish{}, err
	}
	p.removeOld(ctx, stored)
	return publishedPaths(p.task.String(), p.generation.String(), tr, md, as), nil
}

// bucketPublish is one publish into a bucket.
type bucketPublish struct {
	config     Config
	location   Location
	bucket     *storage.Bucket // of location
	task       store.ID
	mine       Assemble
	generation dirName
	stable     stableManifests // as they were read
}

// newest is the highest number of a generation that exists or is served.
func (p *bucketPublish) newest(stored []storage.Artifact) int {
	newest := p.stable.newest()
	for _, a := range stored {
		if d, ok := parseDirName(path.Base(a.Name)); ok {
			newest = max(newest, d.number)
		}
	}
	return newest
}

// copyGeneration makes the generation: by copies inside the service where the assembled files are
// in it, too.
func (p *bucketPublish) copyGeneration(ctx context.Context, job *stages.Job, taskDir string) error {
	name := path.Join(p.task.String(), p.generation.String())
	progress := reportTransfer(job, "publishing")
	if p.config.copiesInService() {
		return p.config.Bucket.storage.CopyArtifact(ctx, artifactName(job.Task, p.mine.Dir), p.bucket, name, progress)
	}
	assembled, err := findResultDir(taskDir, assembleStage, p.mine.Dir)
	if err != nil {
		return err
	}
	// The renditions may be those of the generation before.
	var similar []storage.ArtifactRef
	for _, s := range p.stable {
		for _, served := range s.served {
			similar = append(similar, storage.ArtifactRef{Bucket: p.bucket, Name: path.Join(p.task.String(), served)})
		}
	}
	_, err = p.bucket.PutArtifact(ctx, name, assembled, progress, similar...)
	return err
}

// copiesInService reports whether the service can copy what is published.
func (c Config) copiesInService() bool {
	return c.Bucket != nil && c.PublishBucket != nil && !Route{c.DataLocation(), c.PublishLocation()}.hasTwoServices()
}

// replaceStable switches both manifests to the generation.
func (p *bucketPublish) replaceStable(ctx context.Context, job *stages.Job, taskDir string) error {
	if err := checkStillCurrent(job, p.mine)(ctx); err != nil {
		return err
	}
	texts, err := p.stableTexts(ctx, taskDir)
	if err != nil {
		return err
	}
	err = p.location.replaceStable(ctx, p.task, p.stable, texts)
	if err == nil && texts[1] == nil && p.stable[1].content != nil { // it is that of a clear version
		_, _, err = p.location.removeNames(ctx, removal{dir: p.task.String(), files: []string{media.ManifestName}}, nil)
	}
	return err
}

// removeOld deletes older generations. What it cannot delete, a later publish or a Cleaner does.
func (p *bucketPublish) removeOld(ctx context.Context, stored []storage.Artifact) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	keep := p.config.keepOld()
	stored = slices.DeleteFunc(stored, func(a storage.Artifact) bool {
		d, ok := parseDirName(path.Base(a.Name))
		return ok && keep > 0 && p.stable.refersTo(d) // it was replaced just now
	})
	now, err := p.location.readStable(ctx, p.task)
	if err == nil {
		_, _ = removeOldGenerations(ctx, p.bucket, stored, now, keep)
	}
}

// stableTexts returns the manifests of the stable address.
func (p *bucketPublish) stableTexts(ctx context.Context, taskDir string) ([2][]byte, error) {
	texts, err := rebasedManifests(p.generation.String()+"/", func(name string) ([]byte, error) {
		if p.config.copiesInService() {
			text, _, err := p.bucket.ReadDocument(ctx, path.Join(p.task.String(), p.generation.String(), name))
			return text, err
		}
		return os.ReadFile(filepath.Join(taskDir, p.mine.Dir, name))
	})
	if err != nil {
		return texts, fmt.Errorf("write manifests: %w", err)
	}
	return texts, nil
}

// overBucket returns the stages with their results in Config.Bucket.
func overBucket(c Config) []stages.Stage {
	b := c.bucketResults()
	var all []stages.Stage
	for _, build := range builders {
		all = append(all, b.scratch.withResultsIn(b, build))
	}
	return all
}
