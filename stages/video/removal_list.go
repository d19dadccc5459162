package video

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/media"
)

// clockSlack is how wrong a clock may be: that of this host, that of another host
// which wrote a file's time, or either after it was set. Everything with a
// retention time stays for so much longer.
const clockSlack = time.Hour

// olderThan reports whether a file's or directory's time is at least that long
// ago. A time too far in the future would never become old, so it is set to now.
func olderThan(path string, info fs.FileInfo, age time.Duration) bool {
	actual := time.Since(info.ModTime())
	if actual < -clockSlack {
		_ = touch(path) // if that fails, removing it would fail, too
	}
	return actual >= age+clockSlack
}

// removalList lists what to remove from a directory. It is made under the
// directory's lock. Removing may take long, so it happens without that lock; the
// lock on each entry excludes others.
type removalList struct {
	path  string
	dir   *os.Root
	names []string
	locks []*os.File
}

func newRemovalList(path string) (*removalList, error) {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &removalList{path: path, dir: dir}, nil
}

func (d *removalList) close() {
	for _, f := range d.locks {
		flock.Unlock(f)
	}
	d.dir.Close()
}

// remove removes all entries, or as many as it can, and returns their number.
func (d *removalList) remove(ctx context.Context, freed *int64, each func()) (removed int, err error) {
	for _, name := range d.names {
		if failed := removeAll(ctx, d.dir, name, freed, each); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		removed++
	}
	return removed, err
}

// addOldGenerations adds, from a task's published directory: generations that were
// replaced at least keep ago; generations that were never served, because their
// process died first; and the manifests prepared for those. Only the stable manifests
// decide: without them, every generation stays. The caller holds the directory's
// lock, if there are locks.
func (d *removalList) addOldGenerations(keep time.Duration, abandoned func(fs.DirEntry) bool) error {
	served, err := servedGenerations(d.path)
	if err != nil {
		return err
	}
	entries, err := readDir(d.dir)
	if err != nil {
		return err
	}
	never, waiting := generationSet{}, []string(nil)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), switchPrefix) && abandoned(e) {
			if err := never.addReferenced(filepath.Join(d.path, e.Name(), media.MasterName)); err != nil {
				return err
			}
			waiting = append(waiting, e.Name())
		}
	}
	for _, e := range entries {
		gen, ok := parseDirName(e.Name())
		if !ok || gen.unfinished || gen.stage != generationPrefix || !e.IsDir() || served[gen.number] == e.Name() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // another process removed it
		}
		unserved := never[gen.number] == e.Name()
		replaced := gen.number < served.newest() && (keep <= 0 || olderThan(filepath.Join(d.path, e.Name()), info, keep))
		if (unserved || replaced) && !d.lockAndAdd(gen) && unserved {
			waiting = nil // they show that the generation was never served
		}
	}
	d.names = append(d.names, waiting...)
	return nil
}

// lockAndAdd adds a directory of an attempt unless it is in use, and reports whether
// it did.
func (d *removalList) lockAndAdd(name dirName) bool {
	f, _, err := lockEntry(d.dir, name.String())
	if f == nil || err != nil {
		return false
	}
	renamed, err := renameUnfinished(d.dir, name)
	if err != nil {
		flock.Unlock(f)
		return false
	}
	d.names, d.locks = append(d.names, renamed), append(d.locks, f)
	return true
}
