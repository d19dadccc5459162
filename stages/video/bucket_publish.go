package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
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
	p := &bucketPublish{config: c, bucket: c.PublishBucket.storage, task: job.Task.String(), mine: as}
	if err := p.readStable(ctx); err != nil {
		return Publish{}, err
	}
	stored, err := p.bucket.ListArtifacts(ctx, p.task)
	if err != nil {
		return Publish{}, err
	}
	p.generation = dirName{stage: generationPrefix, number: p.newest(stored) + 1, random: randomName()}
	if err := p.copyGeneration(ctx, job, taskDir); err != nil {
		return Publish{}, err
	}
	job.Progress(stages.Progress{Percent: -1, Note: "switching"})
	if err := p.replaceStable(ctx, job, taskDir, tr.Output); err != nil {
		return Publish{}, err
	}
	return publishedPaths(p.task, p.generation.String(), md, as), nil
}

// bucketPublish is one publish into a bucket.
type bucketPublish struct {
	config     Config
	bucket     *storage.Bucket
	task       string
	mine       Assemble
	generation dirName
	stable     [2]stableManifest // master.m3u8 and manifest.mpd, in the order of the switch
}

// stableManifest is a manifest at the stable address, as it was read.
type stableManifest struct {
	name, version string // no version: it does not exist
	served        generationSet
}

func (p *bucketPublish) readStable(ctx context.Context) error {
	for i, name := range []string{media.MasterName, media.ManifestName} {
		content, version, err := p.bucket.ReadDocument(ctx, path.Join(p.task, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		served := generationSet{}
		served.add(string(content))
		p.stable[i] = stableManifest{name, version, served}
	}
	return nil
}

// newest is the highest number of a generation that exists or is served.
func (p *bucketPublish) newest(stored []storage.Artifact) int {
	newest := max(p.stable[0].served.newest(), p.stable[1].served.newest())
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
	name := path.Join(p.task, p.generation.String())
	progress := reportTransfer(job, "publishing")
	if p.config.copiesInService() {
		return p.config.Bucket.storage.CopyArtifact(ctx, artifactName(job.Task, p.mine.Dir), p.bucket, name, progress)
	}
	assembled, err := findResultDir(taskDir, assembleStage, p.mine.Dir)
	if err != nil {
		return err
	}
	_, err = p.bucket.PutArtifact(ctx, name, assembled, progress)
	return err
}

// copiesInService reports whether the service can copy what is published.
func (c Config) copiesInService() bool {
	return c.Bucket != nil && c.PublishBucket != nil &&
		c.Bucket.storage.Address().Endpoint == c.PublishBucket.storage.Address().Endpoint
}

// replaceStable switches both manifests to the generation.
func (p *bucketPublish) replaceStable(ctx context.Context, job *stages.Job, taskDir string, out *media.Output) error {
	if err := checkStillCurrent(job, p.mine)(ctx); err != nil {
		return err
	}
	texts, err := p.stableTexts(ctx, taskDir, out)
	if err != nil {
		return err
	}
	for i, s := range p.stable {
		_, err := p.bucket.WriteDocument(ctx, path.Join(p.task, s.name), texts[i], s.version)
		if errors.Is(err, storage.ErrConflict) {
			return fmt.Errorf("another attempt published at the same time: %w", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stableTexts returns the manifests of the stable address.
func (p *bucketPublish) stableTexts(
	ctx context.Context, taskDir string, out *media.Output,
) (texts [2][]byte, err error) {
	base := p.generation.String() + "/"
	tmp, err := os.MkdirTemp(taskDir, switchPrefix)
	if err != nil {
		return texts, fmt.Errorf("create new manifests: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err = media.WriteMaster(tmp, out, base); err == nil {
		texts[0], err = os.ReadFile(filepath.Join(tmp, media.MasterName))
	}
	if err != nil {
		return texts, err
	}
	var mpd []byte
	if p.config.copiesInService() {
		mpd, _, err = p.bucket.ReadDocument(ctx, path.Join(p.task, p.generation.String(), media.ManifestName))
	} else {
		mpd, err = os.ReadFile(filepath.Join(taskDir, p.mine.Dir, media.ManifestName))
	}
	if err == nil {
		texts[1], err = withBaseURL(mpd, base)
	}
	if err != nil {
		return texts, fmt.Errorf("write manifest: %w", err)
	}
	return texts, nil
}

// bucketNeeds are the stages whose files a stage reads.
func (c Config) bucketNeeds(stage string) []string {
	switch stage {
	case transcodeStage, metadataStage:
		return []string{ingestStage}
	case assembleStage:
		return []string{transcodeStage, metadataStage}
	case publishStage:
		if c.copiesInService() {
			return nil
		}
		return []string{assembleStage}
	}
	return nil
}

// overBucket returns the stages with their results in Config.Bucket.
func overBucket(c Config) []stages.Stage {
	b := newBucketStages(c)
	var all []stages.Stage
	for _, build := range []func(Config) stages.Stage{
		Config.Ingest, Config.Transcode, Config.Metadata, Config.Assemble, Config.Publish,
	} {
		all = append(all, b.over(build, c.bucketNeeds(build(c).Name)...))
	}
	return all
}
