package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/store"
)

// Location is a directory or a bucket that has results of tasks or published videos. Both have the same
// names in it. The zero value is none.
type Location struct {
	Dir    string  // absolute
	Bucket *Bucket // instead of Dir
}

// tasksName is the directory of results in their location.
const tasksName = "tasks"

// DataLocation is where the results of the stages are.
func (c Config) DataLocation() Location {
	if c.Bucket != nil {
		return Location{Bucket: c.Bucket}
	}
	return Location{Dir: c.DataDir}
}

// PublishLocation is where published videos are.
func (c Config) PublishLocation() Location {
	if c.PublishBucket != nil {
		return Location{Bucket: c.PublishBucket}
	}
	return Location{Dir: c.PublishDir}
}

// String returns the path of the directory, or the address of the bucket without its options.
func (p Location) String() string {
	if p.Bucket != nil {
		return p.Bucket.String()
	}
	return p.Dir
}

// tasks lists the tasks that have a directory in sub, the oldest first. If sub is empty, that is the
// location itself.
func (p Location) tasks(ctx context.Context, sub string) (tasks []store.ID, err error) {
	var names []string
	if p.Bucket != nil {
		names, err = p.Bucket.storage.ListNames(ctx, sub)
	} else {
		names, err = readNames(filepath.Join(p.Dir, sub))
	}
	for _, name := range names {
		if id, err := store.ParseID(name); err == nil && id.String() == name {
			tasks = append(tasks, id)
		}
	}
	return tasks, err
}

// readNames lists the names in a directory, in order. A directory that does not exist has none.
func readNames(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// finished lists the finished directories or complete artifacts of attempts in a task's directory.
func (p Location) finished(ctx context.Context, taskDir string) (found []dirName, err error) {
	var names []string
	if p.Bucket != nil {
		all, listErr := p.Bucket.storage.ListArtifacts(ctx, taskDir)
		for _, a := range all {
			if a.Complete {
				names = append(names, path.Base(a.Name))
			}
		}
		err = listErr
	} else {
		names, err = readNames(filepath.Join(p.Dir, filepath.FromSlash(taskDir)))
	}
	for _, name := range names {
		if d, ok := parseDirName(name); ok && !d.unfinished {
			found = append(found, d)
		}
	}
	return found, err
}

// readFile reads a small file, and returns fs.ErrNotExist if there is none. The version is that of a
// document in a bucket.
func (p Location) readFile(ctx context.Context, name string) (content []byte, version string, err error) {
	if p.Bucket != nil {
		return p.Bucket.storage.ReadDocument(ctx, name)
	}
	content, err = os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(name)))
	return content, "", err
}

// stableManifest is a manifest at the stable address, as it was read. Without content it does not exist.
type stableManifest struct {
	name    string
	content []byte
	version string // of a document in a bucket
	served  generationSet
}

// stableManifests are master.m3u8 and manifest.mpd, in the order of the switch.
type stableManifests [2]stableManifest

func (p Location) readStable(ctx context.Context, task store.ID) (found stableManifests, err error) {
	for i, name := range []string{media.MasterName, media.ManifestName} {
		content, version, err := p.readFile(ctx, path.Join(task.String(), name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
		served := generationSet{}
		served.add(string(content))
		found[i] = stableManifest{name, content, version, served}
	}
	return found, nil
}

// newest is the highest number of a generation that is served.
func (s stableManifests) newest() int { return max(s[0].served.newest(), s[1].served.newest()) }

// refersTo reports whether one of the manifests refers to a generation.
func (s stableManifests) refersTo(generation dirName) bool {
	return slices.ContainsFunc(s[:], func(m stableManifest) bool { return m.served[generation.number] == generation.String() })
}

// touchServed sets the time from which the served generations in a bucket count as old. It runs before
// they are replaced: after a crash in between, they are not too old.
func (p Location) touchServed(ctx context.Context, task store.ID, served stableManifests) error {
	touched := make(map[string]bool)
	for _, s := range served {
		for _, generation := range s.served {
			if touched[generation] {
				continue
			}
			touched[generation] = true
			if err := p.Bucket.storage.TouchArtifact(ctx, path.Join(task.String(), generation)); err != nil {
				return err
			}
		}
	}
	return nil
}

// errOvertaken is a change of stable manifests since they were read.
var errOvertaken = fmt.Errorf("another attempt published at the same time: %w", storage.ErrConflict)

// replaceStable replaces the manifests that were read by others, one after the other. If another process
// has replaced them since, it returns storage.ErrConflict.
func (p Location) replaceStable(ctx context.Context, task store.ID, old stableManifests, contents [2][]byte) error {
	if p.Bucket == nil {
		return replaceStableFiles(ctx, filepath.Join(p.Dir, task.String()), old, contents)
	}
	if err := p.touchServed(ctx, task, old); err != nil {
		return err
	}
	for i, s := range old {
		if contents[i] == nil {
			continue
		}
		_, err := p.Bucket.storage.WriteDocument(ctx, path.Join(task.String(), s.name), contents[i], s.version)
		if errors.Is(err, storage.ErrConflict) {
			return errOvertaken
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replaceStableFiles does so in a task's published directory, by renames like those of a publish.
func replaceStableFiles(ctx context.Context, dir string, old stableManifests, contents [2][]byte) error {
	lock, err := lockDir(ctx, dir)
	if err != nil {
		return err
	}
	defer flock.Unlock(lock)
	served := generationSet{}
	for _, s := range old {
		content, err := os.ReadFile(filepath.Join(dir, s.name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if string(content) != string(s.content) {
			return errOvertaken
		}
		maps.Copy(served, s.served)
	}
	if err := (&generationSwitch{publishedDir: dir}).touchServed(served); err != nil {
		return err
	}
	return writeStableFiles(ctx, dir, contents)
}

func writeStableFiles(ctx context.Context, dir string, contents [2][]byte) error {
	tmp, err := os.MkdirTemp(dir, switchPrefix)
	if err != nil {
		return fmt.Errorf("create new manifests: %w", err)
	}
	defer os.RemoveAll(tmp)
	names := []string{media.MasterName, media.ManifestName}
	for i, name := range names {
		if contents[i] == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(tmp, name), contents[i], servedFileMode); err != nil {
			return err
		}
	}
	if err := makeTreeReadable(tmp, func() {}); err != nil {
		return err
	}
	if err := syncTree(ctx, tmp, func() {}); err != nil {
		return err
	}
	for i, name := range names {
		if contents[i] == nil {
			continue
		}
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("replace manifest: %w", err)
		}
	}
	return syncFile(dir)
}
