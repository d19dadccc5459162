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
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/store"
)

// ContentKind is what a location has. One location may have both.
type ContentKind string

// The kinds are named like the flags.
const (
	DataContent    ContentKind = "data"
	PublishContent ContentKind = "publish"
)

// Relocation is the results of all tasks, the published videos, or both in other locations, to which the operator has copied
// them while no worker was alive. Between a directory and a bucket all names are the same.
//
// Verify compares the new locations with the old ones. Adopt then makes the copies complete: artifacts
// of a bucket get their manifests, and published files can be read by all. Nothing changes in the old locations.
type Relocation map[ContentKind]Route

// Route is an old location and the new one.
type Route struct{ From, To Location }

// Check returns an error if a route goes nowhere, or starts at no directory.
func (r Relocation) Check() error {
	for _, route := range r {
		if route.From.String() == route.To.String() && !route.hasTwoServices() {
			return fmt.Errorf("%s is the old location", route.To)
		}
		if route.From.Bucket != nil {
			continue
		}
		info, err := os.Stat(route.From.Dir)
		if err == nil && !info.IsDir() {
			err = errNotDir
		}
		if err != nil {
			return fmt.Errorf("read the old location: %w", err)
		}
	}
	return nil
}

func (r Route) hasTwoServices() bool {
	return r.From.Bucket != nil && r.To.Bucket != nil &&
		r.From.Bucket.storage.Address().Endpoint != r.To.Bucket.storage.Address().Endpoint
}

// Relocated is what Verify found.
type Relocated struct {
	Results     int        // directories of attempts, and stored sources, in the old locations
	Bytes       int64      // in these
	Differences []string   // what the new locations lack
	Published   []store.ID // tasks with a published video
}

// relocateConcurrency is how many tasks are compared at once: most requests are short and wait for the service.
const relocateConcurrency = 8

// Verify compares everything in the old locations with the new ones, by names and sizes; stable manifests by content.
func (r Relocation) Verify(ctx context.Context) (found Relocated, err error) {
	var mu sync.Mutex // of found
	err = r.each(ctx, func(ctx context.Context, d copiedDir) error {
		difference, err := d.compare(ctx)
		mu.Lock()
		defer mu.Unlock()
		found.Results++
		found.Bytes += storage.Manifest{Files: d.files}.Bytes()
		if difference != "" {
			found.Differences = append(found.Differences, difference)
		}
		return err
	})
	route, isPublished := r[PublishContent]
	if err != nil || !isPublished {
		return found, err
	}
	tasks, err := route.From.tasks(ctx, "")
	for _, task := range tasks {
		if err := route.compareStable(ctx, task, &found); err != nil {
			return found, err
		}
	}
	return found, err
}

// Adopt makes the copies complete. Verify has found no difference. It can be repeated.
func (r Relocation) Adopt(ctx context.Context) error {
	return r.each(ctx, func(ctx context.Context, d copiedDir) error { return d.adopt(ctx) })
}

// copiedDir is a directory that the old location has.
type copiedDir struct {
	Route
	name  string
	files []storage.File
}

// each calls do for all directories of results, stored sources and generations in the old locations.
func (r Relocation) each(ctx context.Context, do func(context.Context, copiedDir) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(relocateConcurrency)
	for kind, route := range r {
		parent, of := tasksName, resultStages()
		if kind == PublishContent {
			parent, of = "", []string{generationPrefix}
		} else {
			group.Go(func() error { return route.eachSource(groupCtx, do) })
		}
		tasks, err := route.From.tasks(ctx, parent)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		for _, task := range tasks {
			group.Go(func() error { return route.eachResult(groupCtx, path.Join(parent, task.String()), of, do) })
		}
	}
	return group.Wait()
}

func (r Route) eachSource(ctx context.Context, do func(context.Context, copiedDir) error) error {
	names, err := r.From.storedSources(ctx)
	for _, name := range names {
		if err == nil {
			err = r.directory(ctx, name, do)
		}
	}
	return err
}

// eachResult calls do for the finished directories of some stages in a task's directory.
func (r Route) eachResult(ctx context.Context, dir string, of []string, do func(context.Context, copiedDir) error) error {
	names, err := r.From.finished(ctx, dir)
	for _, d := range names {
		if err == nil && slices.Contains(of, d.stage) {
			err = r.directory(ctx, path.Join(dir, d.String()), do)
		}
	}
	return err
}

func (r Route) directory(ctx context.Context, name string, do func(context.Context, copiedDir) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	files, err := r.From.listFiles(ctx, name)
	if err != nil {
		return fmt.Errorf("%s in %s: %w", name, r.From, err)
	}
	return do(ctx, copiedDir{r, name, files})
}

// compareStable compares what players of a task's published video load first.
func (r Route) compareStable(ctx context.Context, task store.ID, found *Relocated) error {
	from, err := r.From.readStable(ctx, task)
	if err != nil || from.newest() == 0 {
		return err
	}
	found.Published = append(found.Published, task)
	to, err := r.To.readStable(ctx, task)
	for i := range from {
		if err == nil && string(from[i].content) != string(to[i].content) {
			found.Differences = append(found.Differences,
				fmt.Sprintf("%s in %s is missing, or another one", path.Join(task.String(), from[i].name), r.To))
		}
	}
	return err
}

// compare returns what differs in the new location; empty if it has all files.
func (d copiedDir) compare(ctx context.Context) (difference string, err error) {
	if d.To.Bucket != nil {
		err := d.To.Bucket.storage.CheckFiles(ctx, d.name, d.files)
		if err == nil && d.From.Bucket != nil { // else Adopt makes the list of files
			_, err = d.To.Bucket.storage.ReadManifest(ctx, d.name)
		}
		if errors.Is(err, storage.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s in %s: %v", d.name, d.To, err), nil
		}
		return "", err
	}
	for _, f := range d.files {
		file := filepath.Join(d.To.path(d.name), filepath.FromSlash(f.Name))
		switch info, err := os.Lstat(file); {
		case errors.Is(err, fs.ErrNotExist):
			return file + " is missing", nil
		case err != nil:
			return "", err
		case !info.Mode().IsRegular() || info.Size() != f.Size:
			return file + " has another size than in " + d.From.String(), nil
		}
	}
	return "", nil
}

// adopt makes a copied directory one that stages and players can use.
func (d copiedDir) adopt(ctx context.Context) error {
	if d.To.Bucket != nil {
		if d.From.Bucket != nil {
			return nil // the list of files was copied, too
		}
		return d.To.Bucket.storage.AdoptArtifact(ctx, d.name, d.From.path(d.name))
	}
	dir := d.To.path(d.name)
	if err := storage.RemoveManifest(dir); err != nil {
		return err
	}
	if last, ok := parseDirName(path.Base(d.name)); !ok || last.stage != generationPrefix {
		return nil
	}
	if err := setMode(filepath.Dir(dir), servedMode); err != nil {
		return err
	}
	return makeTreeReadable(dir, func() {})
}

// listFiles lists the files of a directory of an attempt, ordered by name.
func (p Location) listFiles(ctx context.Context, name string) ([]storage.File, error) {
	if p.Bucket == nil {
		return storage.ListFiles(p.path(name))
	}
	m, err := p.Bucket.storage.ReadManifest(ctx, name)
	return m.Files, err
}
