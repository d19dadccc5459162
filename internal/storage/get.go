package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/flock"
)

// unfinished ends the names of directories of downloads.
const unfinished = ".tmp"

// GetArtifact downloads an artifact into the new directory dir, or only some of it: files by
// their names, and directories in it with all of their files. It fills dir.tmp, continues
// what it finds there, verifies sizes and hashes, syncs all to disk and renames the directory.
// A lock on dir.tmp keeps two calls apart, also in two processes.
//
// It returns fs.ErrExist if dir exists, fs.ErrNotExist if the artifact or a part of it does
// not exist, and ErrCorrupt if a file is not as the manifest says. A caller that does not
// repeat a failed call removes dir.tmp.
func (b *Bucket) GetArtifact(ctx context.Context, name, dir string, only []string, progress Progress) (Manifest, error) {
	m, err := b.getArtifact(ctx, name, dir, only, progress)
	if errors.Is(err, ErrCorrupt) {
		// The artifact may have been deleted meanwhile.
		if _, missing := b.readManifest(ctx, name); isMissing(missing) {
			err = missing
		}
	}
	return m, b.wrap(ctx, err, "get artifact", name)
}

// isMissing reports whether the object, and not its bucket, does not exist.
func isMissing(err error) bool {
	return hasCode(err, minio.NoSuchKey)
}

func (b *Bucket) getArtifact(
	ctx context.Context, name, dir string, only []string, progress Progress,
) (m Manifest, err error) {
	if err := checkName(name); err != nil {
		return m, err
	}
	if m, err = b.readManifest(ctx, name); err != nil {
		return m, err
	}
	if m.Files, err = selectFiles(m.Files, only); err != nil {
		return m, err
	}
	g, err := newGet(ctx, b, name, dir)
	if err != nil {
		return m, err
	}
	defer g.close()
	g.counter = counter{report: progress, total: m.Bytes()}
	if err := g.files(ctx, m.Files); err != nil {
		return m, err
	}
	return m, g.finish(dir)
}

// get is one call of GetArtifact.
type get struct {
	b       *Bucket
	name    string
	path    string // of the unfinished directory
	lock    *os.File
	root    *os.Root // of path: no name leads out of it
	counter counter
}

func newGet(ctx context.Context, b *Bucket, name, dir string) (*get, error) {
	g := &get{b: b, name: name, path: dir + unfinished}
	for {
		if _, err := os.Lstat(dir); err == nil {
			return nil, fmt.Errorf("%s: %w", dir, fs.ErrExist)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := os.MkdirAll(g.path, 0o755); err != nil {
			return nil, err
		}
		var err error
		if g.lock, err = os.Open(g.path); err != nil {
			return nil, err
		}
		if err := flock.Lock(ctx, g.lock, flock.Exclusive); err != nil {
			g.lock.Close()
			return nil, err
		}
		// The holder of the lock before this one may have renamed or removed the directory.
		locked, err1 := g.lock.Stat()
		now, err2 := os.Lstat(g.path)
		if err1 == nil && err2 == nil && os.SameFile(locked, now) {
			break
		}
		flock.Unlock(g.lock)
	}
	var err error
	if g.root, err = os.OpenRoot(g.path); err != nil {
		flock.Unlock(g.lock)
	}
	return g, err
}

func (g *get) close() {
	g.root.Close()
	flock.Unlock(g.lock)
}

func (g *get) files(ctx context.Context, files []File) error {
	if err := g.removeOthers(files); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(g.b.options.Connections)
	for _, f := range files {
		group.Go(func() error {
			if err := groupCtx.Err(); err != nil {
				return err
			}
			return g.file(groupCtx, f)
		})
	}
	return group.Wait()
}

// removeOthers removes files of an earlier call that asked for other ones.
func (g *get) removeOthers(files []File) error {
	present, err := ListFiles(g.path)
	for _, p := range present {
		if !slices.ContainsFunc(files, func(f File) bool { return f.Name == p.Name }) {
			err = errors.Join(err, g.root.Remove(filepath.FromSlash(p.Name)))
		}
	}
	return err
}

// finish syncs the directories and gives the artifact its name.
func (g *get) finish(dir string) error {
	err := filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
	if err != nil {
		return err
	}
	if err := os.Rename(g.path, dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
