package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/storage"
)

// copyDir copies a directory of an attempt, and reports whether the new location has it then: not if it
// was removed meanwhile.
func (m *Move) copyDir(ctx context.Context, r Route, name string, parentMode fs.FileMode, done *CopyResult) (there bool, err error) {
	files, missing, err := r.compare(ctx, name)
	switch {
	case err == nil && !missing:
		done.Present++
		if !m.DryRun {
			err = r.finishDir(name, parentMode)
		}
		done.add(r, name, files)
		return true, err
	case err == nil && !m.DryRun:
		err = m.copyFiles(ctx, r, name, done.newBytes(files), parentMode, done.there)
	}
	if errors.Is(err, fs.ErrNotExist) && r.isGone(ctx, name) {
		return false, nil
	}
	if err == nil {
		done.Copied++
		done.Bytes += storage.Manifest{Files: files}.Bytes()
		done.add(r, name, files)
	}
	return err == nil, err
}

func (m *Move) progress(name string) storage.Progress {
	if m.Progress == nil {
		return nil
	}
	return func(done, total int64) { m.Progress(name, done, total) }
}

// newBytes is the size of files without those that can be linked.
func (d *CopyResult) newBytes(files []storage.File) (size int64) {
	for _, f := range files {
		if f.SHA256 == "" || !d.hashes[f.SHA256] {
			size += f.Size
		}
	}
	return size
}

// add adds a directory that the new location has.
func (d *CopyResult) add(r Route, name string, files []storage.File) {
	if d.hashes == nil {
		d.hashes = make(map[string]bool)
	}
	for _, f := range files {
		d.hashes[f.SHA256] = true
	}
	there := storage.LocalArtifact{ArtifactRef: storage.ArtifactRef{Name: name}}
	if r.To.Bucket != nil {
		there.Bucket = r.To.Bucket.storage
	} else {
		there.Bucket, there.Dir = r.From.Bucket.storage, filepath.Join(r.To.Dir, filepath.FromSlash(name))
	}
	d.there = append(d.there, there)
}

// compare returns the files of a directory in the old location, and whether the new location does not have
// it. Its name is never used again, so it need not be read if its files and their sizes are there.
func (r Route) compare(ctx context.Context, name string) (files []storage.File, missing bool, err error) {
	files, err = r.From.listFiles(ctx, name)
	if err != nil {
		return nil, false, err
	}
	to, err := r.To.listFiles(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return files, true, nil
	}
	isSame := func(a, b storage.File) bool { return a.Name == b.Name && a.Size == b.Size }
	if err == nil && !slices.EqualFunc(files, to, isSame) {
		err = fmt.Errorf("%s has other files in %s than in %s", name, r.To, r.From)
	}
	return files, false, err
}

// listFiles lists the files of a directory of an attempt, ordered by name.
func (p Location) listFiles(ctx context.Context, name string) ([]storage.File, error) {
	if p.Bucket == nil {
		return storage.ListFiles(filepath.Join(p.Dir, filepath.FromSlash(name)))
	}
	m, err := p.Bucket.storage.ReadManifest(ctx, name)
	return m.Files, err
}

// isGone reports whether a directory is not in the old location any more.
func (r Route) isGone(ctx context.Context, name string) bool {
	_, err := r.From.listFiles(ctx, name)
	return errors.Is(err, fs.ErrNotExist)
}

func (m *Move) copyFiles(
	ctx context.Context, r Route, name string, newBytes int64, parentMode fs.FileMode, there []storage.LocalArtifact,
) error {
	progress := m.progress(name)
	if r.From.Bucket == nil {
		var similar []storage.ArtifactRef
		for _, t := range there {
			similar = append(similar, t.ArtifactRef)
		}
		_, err := r.To.Bucket.storage.PutArtifact(ctx, name, filepath.Join(r.From.Dir, filepath.FromSlash(name)), progress, similar...)
		return err
	}
	if r.To.Bucket != nil {
		return r.From.Bucket.storage.CopyArtifact(ctx, name, r.To.Bucket.storage, name, progress)
	}
	dir := filepath.Join(r.To.Dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(dir), parentMode); err != nil {
		return err
	}
	done, err := m.disks.use(dir, newBytes, Config{Reserve: m.Reserve}.reserve())
	if err != nil {
		return err
	}
	defer done()
	_, err = r.From.Bucket.storage.GetArtifact(ctx, name, dir, nil, progress, there...)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return r.finishDir(name, parentMode)
}

// finishDir makes a published directory readable for all. It does so again for one that was there:
// the call that copied it may have been interrupted.
func (r Route) finishDir(name string, parentMode fs.FileMode) error {
	if r.To.Bucket != nil || parentMode != servedMode {
		return nil
	}
	dir := filepath.Join(r.To.Dir, filepath.FromSlash(name))
	if err := setMode(filepath.Dir(dir), servedMode); err != nil {
		return err
	}
	return makeTreeReadable(dir, func() {})
}
