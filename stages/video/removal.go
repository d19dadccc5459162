package video

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// removal is what to remove of a task in one location. The files are removed first, so that no player
// finds a manifest whose segments are gone.
type removal struct {
	dir    string
	files  []string
	stages []string // whose directories are removed
}

// names lists what to remove besides the files.
func (w removal) names(ctx context.Context, p Location) (names []string, err error) {
	isOfStages := func(name string) bool {
		d, ok := parseDirName(name)
		return ok && slices.Contains(w.stages, d.stage)
	}
	if p.Bucket != nil {
		artifacts, err := p.Bucket.storage.ListArtifacts(ctx, w.dir)
		for _, a := range artifacts {
			if name := path.Base(a.Name); isOfStages(name) {
				names = append(names, name)
			}
		}
		return names, err
	}
	entries, err := os.ReadDir(p.path(w.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), switchPrefix) || isPartialDownload(e) || e.IsDir() && isOfStages(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// path is that of a name in a directory.
func (p Location) path(name string) string { return filepath.Join(p.Dir, filepath.FromSlash(name)) }

// removeNames removes the files and the names, and returns their number and the freed bytes on a disk.
func (p Location) removeNames(ctx context.Context, what removal, names []string) (removed int, freed int64, err error) {
	if p.Bucket != nil {
		for _, file := range what.files {
			if err := p.Bucket.storage.DeleteDocument(ctx, path.Join(what.dir, file)); err != nil {
				return removed, 0, err
			}
		}
		for _, name := range names {
			if err := p.Bucket.storage.DeleteArtifact(ctx, path.Join(what.dir, name)); err != nil {
				return removed, 0, err
			}
			removed++
		}
		return removed, 0, nil
	}
	list, err := newRemovalList(p.path(what.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer list.close()
	list.names = slices.Concat(what.files, names)
	if removed, err = list.remove(ctx, &freed, func() {}); err == nil {
		_ = os.Remove(list.path) // if it is empty
	}
	return removed, freed, err
}
