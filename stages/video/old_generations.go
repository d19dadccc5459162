package video

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/media"
)

// clockSlack is how wrong a clock may be: this host's, that of another which
// wrote a file's time, or either after it was set. Everything that is kept for a
// time is kept for so much longer.
const clockSlack = time.Hour

// olderThan reports whether a file's or directory's time is at least so long
// ago. One from a future that no clock can be blamed for would never become
// old: its time begins now.
func olderThan(path string, info fs.FileInfo, least time.Duration) bool {
	age := time.Since(info.ModTime())
	if age < -clockSlack {
		_ = touch(path) // if it cannot be set, nor could it be removed
	}
	return age >= least+clockSlack
}

// removalList is what is to be removed from a directory. It is decided about under
// the directory's lock and removed without, because that may take long; then
// the lock on each of them keeps others away.
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
		unlock(f)
	}
	d.dir.Close()
}

// remove removes them all, or as many as it can, and says how many that were.
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

// addOldGenerations adds what may go from a task's published directory, whose lock is
// held or which has none: generations that were replaced at least keep ago;
// generations that were never served, because their process died before; and
// the manifests that waited for that. Only what the stable manifests say
// decides: where there are none, every generation stays.
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
			continue // somebody else was quicker
		}
		unserved := never[gen.number] == e.Name()
		replaced := gen.number < served.newest() && (keep <= 0 || olderThan(filepath.Join(d.path, e.Name()), info, keep))
		if (unserved || replaced) && !d.lockAndAdd(gen) && unserved {
			waiting = nil // without them nobody would know
		}
	}
	d.names = append(d.names, waiting...)
	return nil
}

// lockAndAdd dooms a directory of an attempt, unless one holds it, and reports
// whether it did.
func (d *removalList) lockAndAdd(name dirName) bool {
	f, err := d.dir.Open(name.String())
	if err != nil {
		return false
	}
	if locked, err := tryLock(f); err == nil && !locked {
		f.Close()
		return false
	}
	retired, err := renameUnfinished(d.dir, name)
	if err != nil {
		unlock(f)
		return false
	}
	d.names, d.locks = append(d.names, retired), append(d.locks, f)
	return true
}
