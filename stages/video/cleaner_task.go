package video

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/internal/flock"
)

// partialDownload is an unfinished download in a task's directory. The state files
// of internal/fetch have the same prefix.
const partialDownload = "download.part"

// partialDownloadFiles lists all its files, the one that describes the others first.
var partialDownloadFiles = []string{partialDownload + ".json", partialDownload + ".json.tmp", partialDownload}

// findAbandonedInTask lists what to remove from DataDir/tasks/<task>.
func (t *Cleaner) findAbandonedInTask(d *removalList) (busy bool, err error) {
	entries, err := readDir(d.dir)
	isCandidate := func(e fs.DirEntry) bool { return isUnfinishedDir(e) || isPartialDownload(e) }
	if err != nil || !slices.ContainsFunc(entries, isCandidate) {
		return false, err
	}
	lock, _, err := lockEntry(d.dir, ".")
	if lock == nil {
		return true, err
	}
	defer flock.Unlock(lock)
	t.addAbandoned(d, entries)
	t.addPartialDownload(d, entries)
	return false, nil
}

// findAbandonedInPublished lists what to remove from PublishDir/<task>.
func (t *Cleaner) findAbandonedInPublished(d *removalList) (busy bool, err error) {
	entries, err := readDir(d.dir)
	if err != nil {
		return false, err
	}
	known := slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool {
		_, ok := parseDirName(e.Name())
		return !ok && !strings.HasPrefix(e.Name(), switchPrefix)
	})
	if len(known) == 0 || len(known) == 1 && !isUnfinishedDir(known[0]) {
		return false, nil // at most the served generation
	}
	lock, _, err := lockEntry(d.dir, ".")
	if lock == nil {
		return true, err
	}
	defer flock.Unlock(lock)
	t.addAbandoned(d, entries)
	return false, d.addOldGenerations(t.Config.keepOld(), func(e fs.DirEntry) bool {
		return t.isAbandoned(d, e, isLocal(lock))
	})
}

// isUnfinishedDir reports whether an entry is a working directory, or one in removal.
func isUnfinishedDir(e fs.DirEntry) bool {
	d, ok := parseDirName(e.Name())
	return ok && d.unfinished && e.IsDir() &&
		slices.Contains(append(resultStages(), generationPrefix), d.stage)
}

func isPartialDownload(e fs.DirEntry) bool {
	return slices.Contains(partialDownloadFiles, e.Name()) && e.Type().IsRegular()
}

// addAbandoned adds the directories of dead attempts.
func (t *Cleaner) addAbandoned(d *removalList, entries []fs.DirEntry) {
	for _, e := range entries {
		if !isUnfinishedDir(e) {
			continue
		}
		f, supported, _ := lockEntry(d.dir, e.Name())
		if f == nil {
			continue // it is in use, or another process removed it
		}
		if !t.isAbandoned(d, e, supported && isLocal(f)) {
			flock.Unlock(f)
			continue
		}
		d.names, d.locks = append(d.names, e.Name()), append(d.locks, f)
	}
}

// isAbandoned reports whether an entry with a free lock was untouched for long
// enough. locksVisible means that the lock of a living attempt would be visible.
func (t *Cleaner) isAbandoned(d *removalList, e fs.DirEntry, locksVisible bool) bool {
	minIdle := t.MinIdle
	switch {
	case !locksVisible:
		minIdle = minIdleWithoutLocks
	case minIdle < 0:
		return true
	case minIdle == 0:
		minIdle = defaultMinIdle
	}
	info, err := e.Info()
	return err == nil && olderThan(filepath.Join(d.path, e.Name()), info, minIdle)
}

// addPartialDownload adds an unfinished download that was not continued for long.
func (t *Cleaner) addPartialDownload(d *removalList, entries []fs.DirEntry) {
	var names []string
	for _, name := range partialDownloadFiles {
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
		if i < 0 {
			continue
		}
		info, err := entries[i].Info()
		if err != nil || !isPartialDownload(entries[i]) || !olderThan(filepath.Join(d.path, name), info, partialDownloadAge) {
			return
		}
		names = append(names, name)
	}
	if slices.Contains(names, partialDownload) {
		// A download holds its lock, and checks after locking that it still exists.
		f, err := d.dir.OpenFile(partialDownload, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		if locked, err := flock.TryLock(f, flock.Exclusive); err == nil && !locked {
			f.Close()
			return
		}
		d.locks = append(d.locks, f)
	}
	d.names = append(d.names, names...)
}
