package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/store"
)

// restoreAssembled makes the files of a published generation the result of assemble again if those of that result are
// gone, so that the task can be published again: they are removed some time after publishing if
// Config.KeepSourceCopies is set. Then the generation is the only copy of the video. Without such a generation it does nothing.
func (c Config) restoreAssembled(
	ctx context.Context, task store.ID, results func(ctx context.Context, stage string) (json.RawMessage, error),
	progress storage.Progress,
) error {
	raw, err := results(ctx, assembleStage)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	var as Assemble
	if err == nil {
		err = json.Unmarshal(raw, &as)
	}
	if err != nil {
		return fmt.Errorf("read result of %s: %w", assembleStage, err)
	}
	if d, ok := parseDirName(as.Dir); !ok || d.stage != assembleStage || d.unfinished {
		return fmt.Errorf("%q is not a result directory of stage %s", as.Dir, assembleStage)
	}
	if c.Bucket == nil {
		dir, err := c.makeTaskDir(task)
		if err != nil {
			return err
		}
		lock, err := lockDir(ctx, dir) // a Cleaner that removes the results holds it, too
		if err != nil {
			return err
		}
		defer flock.Unlock(lock)
		defer os.Remove(dir) // if it is empty
	}
	isThere, err := c.DataLocation().hasAssembled(ctx, artifactName(task, as.Dir), as)
	if err != nil || isThere {
		return err
	}
	generation, err := c.PublishLocation().findGeneration(ctx, task, as)
	if err != nil || generation == "" {
		return err
	}
	if err := c.copyToAssembled(ctx, task, generation, as, progress); err != nil {
		return fmt.Errorf("restore result of %s: %w", assembleStage, err)
	}
	return nil
}

// hasAssembled reports whether a directory of an attempt has the files of a result, by their number and size.
func (p Location) hasAssembled(ctx context.Context, name string, as Assemble) (bool, error) {
	files, err := p.listFiles(ctx, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return false, nil
	}
	return err == nil && len(files) == as.Files && storage.Manifest{Files: files}.Bytes() == as.Bytes, err
}

// findGeneration returns the name of the newest generation with the files of a result; empty if there is none. It may be
// served no more.
func (p Location) findGeneration(ctx context.Context, task store.ID, as Assemble) (string, error) {
	found, err := p.finished(ctx, task.String())
	slices.SortFunc(found, func(a, b dirName) int { return b.number - a.number })
	for _, d := range found {
		if d.stage != generationPrefix {
			continue
		}
		name := path.Join(task.String(), d.String())
		if has, err := p.hasAssembled(ctx, name, as); has || err != nil {
			return name, err
		}
	}
	return "", err
}

// copyToAssembled copies a generation to the place of a result. A repeated call continues.
func (c Config) copyToAssembled(
	ctx context.Context, task store.ID, generation string, as Assemble, progress storage.Progress,
) error {
	from, to, name := c.PublishLocation(), c.DataLocation(), artifactName(task, as.Dir)
	switch {
	case c.copiesInService():
		return from.Bucket.storage.CopyArtifact(ctx, generation, to.Bucket.storage, name, progress)
	case from.Bucket == nil && to.Bucket != nil:
		_, err := to.Bucket.storage.PutArtifact(ctx, name, from.path(generation), progress)
		return err
	}
	taskDir, err := c.makeTaskDir(task)
	if err != nil {
		return err
	}
	dir := filepath.Join(taskDir, as.Dir)
	if to.Bucket == nil {
		if err := os.RemoveAll(dir); err != nil { // it is not complete
			return err
		}
	}
	if from.Bucket == nil {
		return c.linkAssembled(ctx, from.path(generation), dir, as, progress)
	}
	if err := diskspace.Check(taskDir, as.Bytes, c.reserve()); err != nil {
		return err
	}
	_, err = from.Bucket.storage.GetArtifact(ctx, generation, dir, nil, progress)
	if errors.Is(err, fs.ErrExist) {
		err = nil // a copy of this host
	}
	if err == nil && to.Bucket != nil {
		_, err = to.Bucket.storage.PutArtifact(ctx, name, dir, progress)
	}
	return err
}

// linkAssembled links the files of a generation into the new directory dir, or copies them to another file system.
func (c Config) linkAssembled(ctx context.Context, generation, dir string, as Assemble, progress storage.Progress) error {
	tmp := dir + ".tmp" // the name of an unfinished one
	if err := os.Mkdir(tmp, servedMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	l := linker{need: as.Bytes, reserve: c.reserve(), resume: true, onFile: func(done treeSize) {
		if progress != nil {
			progress(done.bytes, as.Bytes)
		}
	}}
	if err := l.add(ctx, generation, tmp, servedMode); err != nil {
		return err
	}
	if err := syncTree(ctx, tmp, func() {}); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return syncFile(filepath.Dir(dir))
}
