package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/store"
)

const (
	// unfinishedArtifactAge is how long an artifact without a manifest stays after its last byte
	// arrived. An attempt is cancelled when it makes no progress for much less.
	unfinishedArtifactAge = 24 * time.Hour
	// bucketTasksPerClean limits one call of Clean per bucket, because requests cost money.
	bucketTasksPerClean = 200
	// bucketPassInterval is the shortest time from one pass over all tasks to the next.
	bucketPassInterval = 6 * time.Hour
)

// bucketPass is one pass over the tasks in a bucket.
type bucketPass struct {
	begun time.Time
	tasks []store.ID // to be inspected, the newest last
}

// cleanBucket cleans the next tasks in a location.
func (t *Cleaner) cleanBucket(
	ctx context.Context, l Location, sub string, pass *bucketPass,
	clean func(context.Context, *storage.Bucket, store.ID) (removed int, err error), done *CleanResult,
) error {
	if l.Bucket == nil {
		return nil
	}
	if len(pass.tasks) == 0 {
		if time.Since(pass.begun) < bucketPassInterval {
			return nil
		}
		tasks, err := l.tasks(ctx, sub)
		if err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
		pass.begun, pass.tasks = time.Now(), tasks
	}
	var first error
	for range min(len(pass.tasks), bucketTasksPerClean) {
		last := len(pass.tasks) - 1
		removed, err := clean(ctx, l.Bucket.storage, pass.tasks[last])
		done.Removed += removed
		if _, isService := errors.AsType[*storage.ServiceError](err); isService || ctx.Err() != nil {
			return err // the next call tries this task again
		}
		if err != nil && first == nil {
			first = fmt.Errorf("clean up %s: %w", pass.tasks[last], err)
		}
		pass.tasks = pass.tasks[:last]
	}
	return first
}

// isOld reports whether an artifact has its time for at least age, by the service's clock.
func isOld(b *storage.Bucket, a storage.Artifact, age time.Duration) bool {
	return b.Now().Sub(a.Modified) >= age+clockSlack
}

// cleanResults deletes, of a task's artifacts, those of killed uploads, and those that are older than
// the recorded result of their stage.
func (t *Cleaner) cleanResults(ctx context.Context, b *storage.Bucket, task store.ID) (removed int, err error) {
	stored, err := b.ListArtifacts(ctx, path.Join(tasksName, task.String()))
	if err != nil {
		return 0, err
	}
	for _, a := range stored {
		d, ok := parseDirName(path.Base(a.Name))
		if !ok || !slices.Contains(resultStages(), d.stage) || !isOld(b, a, unfinishedArtifactAge) {
			continue
		}
		if a.Complete {
			used, err := t.usedNumber(ctx, task, d.stage, stored)
			if err != nil {
				return removed, err
			}
			if d.number >= used {
				continue
			}
		}
		if err := b.DeleteArtifact(ctx, a.Name); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// usedNumber returns the number of the recorded result of a stage, or 0 if it is not known. It asks
// only if there is more than one artifact of the stage. Of chunks that were joined, none is used.
func (t *Cleaner) usedNumber(
	ctx context.Context, task store.ID, stage string, stored []storage.Artifact,
) (int, error) {
	several := 0
	for _, a := range stored {
		if d, ok := parseDirName(path.Base(a.Name)); ok && d.stage == stage && a.Complete {
			several++
		}
	}
	if several < 2 || t.Results == nil {
		return 0, nil
	}
	isChunk := stage == chunkPrefix
	if isChunk {
		stage = transcodeStage
	}
	raw, err := t.Results(ctx, task, stage)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err == nil && isChunk {
		var tr Transcode
		err = json.Unmarshal(raw, &tr)
		return tr.afterChunks().number, err
	}
	var name string
	if err == nil {
		name, err = resultDir(stage, raw)
	}
	d, _ := parseDirName(name)
	return d.number, err
}

// resultDir returns the directory that a recorded result names.
func resultDir(stage string, raw json.RawMessage) (string, error) {
	var result struct {
		File string `json:"file"`
		Dir  string `json:"dir"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return "", fmt.Errorf("read result of %s: %w", stage, err)
	}
	if stage == ingestStage {
		return path.Dir(result.File), nil
	}
	return result.Dir, nil
}

// cleanGenerations deletes, of a task's generations, those of killed uploads, and those that were
// replaced at least Config.KeepOld ago.
func (t *Cleaner) cleanGenerations(ctx context.Context, b *storage.Bucket, task store.ID) (removed int, err error) {
	stored, err := b.ListArtifacts(ctx, task.String())
	if err != nil {
		return 0, err
	}
	isCandidate := func(a storage.Artifact) bool { return !a.Complete }
	if len(stored) < 2 && !slices.ContainsFunc(stored, isCandidate) {
		return 0, nil // at most the served generation
	}
	// A generation that is older than the served one is never served again. Its time was set before it
	// was replaced, so a list from after this reading has the time.
	stable, err := t.Config.PublishLocation().readStable(ctx, task)
	if err != nil {
		return 0, err
	}
	if stored, err = b.ListArtifacts(ctx, task.String()); err != nil {
		return 0, err
	}
	return removeOldGenerations(ctx, b, stored, stable, t.Config.keepOld())
}

// removeOldGenerations deletes generations that were replaced at least keep ago, and killed uploads.
// Only the stable manifests decide: without them, every generation stays.
func removeOldGenerations(
	ctx context.Context, b *storage.Bucket, stored []storage.Artifact, stable stableManifests, keep time.Duration,
) (removed int, err error) {
	for _, a := range stored {
		d, ok := parseDirName(path.Base(a.Name))
		if !ok || d.stage != generationPrefix || stable.refersTo(d) {
			continue
		}
		isReplaced := a.Complete && d.number < stable.newest() && (keep <= 0 || isOld(b, a, keep))
		if !isReplaced && (a.Complete || !isOld(b, a, unfinishedArtifactAge)) {
			continue
		}
		if err := b.DeleteArtifact(ctx, a.Name); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
