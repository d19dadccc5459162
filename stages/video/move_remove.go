package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/store"
)

// Remove deletes from the old locations the results and the published video of a task that the new
// locations have, or of which they have something newer. It returns an error unless the move is
// complete, and after the removal if something has stayed. Files with unknown names stay without an error.
func (m *Move) Remove(ctx context.Context, task store.ID) error {
	if err := m.checkComplete(ctx); err != nil {
		return err
	}
	return errors.Join(m.removeResults(ctx, task), m.removePublished(ctx, task))
}

func (m *Move) checkComplete(ctx context.Context) error {
	complete, err := m.IsComplete(ctx)
	if err == nil && !complete {
		err = errors.New("the move is not complete")
	}
	return err
}

// stayError names what is in an old location only.
type stayError struct {
	names    []string
	from, to Location
}

func (e *stayError) Error() string {
	return fmt.Sprintf("%s in %s stays: %s has neither it nor something newer", strings.Join(e.names, ", "), e.from, e.to)
}

func (m *Move) removeResults(ctx context.Context, task store.ID) error {
	if m.Data == (Route{}) {
		return nil
	}
	dir := path.Join(tasksName, task.String())
	there, err := m.Data.To.finished(ctx, dir)
	if err != nil {
		return err
	}
	return m.Data.remove(ctx, removal{dir: dir, stages: resultStages(), isThere: func(d dirName) bool {
		return slices.ContainsFunc(there, func(t dirName) bool {
			return t == d || t.stage == d.stage && t.number > d.number && t.stage != chunkPrefix // none replaces another
		})
	}})
}

func (m *Move) removePublished(ctx context.Context, task store.ID) error {
	if m.Published == (Route{}) {
		return nil
	}
	stable, err := m.Published.From.readStable(ctx, task)
	if err != nil {
		return err
	}
	current, err := m.Published.To.readStable(ctx, task)
	if err != nil {
		return err
	}
	r := removal{dir: task.String(), stages: []string{generationPrefix}, isThere: func(d dirName) bool {
		return current.newest() >= max(d.number, stable.newest())
	}}
	if newest := stable.newest(); newest > 0 && current.newest() >= newest {
		r.files = []string{media.MasterName, media.ManifestName}
	}
	return m.Published.remove(ctx, r)
}

// removal is what to remove of a task in one location. The files are removed first, so that no player
// finds a manifest whose segments are gone.
type removal struct {
	dir     string
	files   []string
	stages  []string           // whose directories are removed
	isThere func(dirName) bool // the new location has it, or something newer
}

func (r Route) remove(ctx context.Context, what removal) error {
	remove, stay, err := r.From.divide(ctx, what)
	if err == nil {
		_, _, err = r.From.removeNames(ctx, what, remove)
	}
	if err == nil && len(stay) > 0 {
		err = &stayError{stay, r.From, r.To}
	}
	return err
}

// divide lists what to remove besides the files, and what must stay.
func (p Location) divide(ctx context.Context, what removal) (remove, stay []string, err error) {
	add := func(name string, unfinished bool) {
		d, ok := parseDirName(name)
		switch {
		case !ok || !slices.Contains(what.stages, d.stage):
		case unfinished || d.unfinished || what.isThere(d):
			remove = append(remove, name)
		default:
			stay = append(stay, name)
		}
	}
	if p.Bucket != nil {
		artifacts, err := p.Bucket.storage.ListArtifacts(ctx, what.dir)
		for _, a := range artifacts {
			add(path.Base(a.Name), !a.Complete)
		}
		return remove, stay, err
	}
	entries, err := os.ReadDir(p.path(what.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), switchPrefix) || isPartialDownload(e) {
			remove = append(remove, e.Name())
		} else if e.IsDir() {
			add(e.Name(), false)
		}
	}
	return remove, stay, err
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
