package video

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// partialDownload is where an unfinished download waits in a task's directory.
// What internal/fetch keeps beside it has the same beginning.
const partialDownload = "download.part"

// partialDownloadFiles are all of them, the one that vouches for the others first.
var partialDownloadFiles = []string{partialDownload + ".json", partialDownload + ".json.tmp", partialDownload}

// findAbandonedInTask finds what is dead in DataDir/tasks/<task>.
func (t *Cleaner) findAbandonedInTask(d *removalList) (busy bool, err error) {
	entries, err := readDir(d.dir)
	if err != nil || !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return isUnfinishedDir(e) || isPartialDownload(e) }) {
		return false, err
	}
	lock, err := tryLockDir(d.dir)
	if lock == nil {
		return true, err
	}
	defer unlock(lock)
	t.addAbandoned(d, entries)
	t.addPartialDownload(d, entries)
	return false, nil
}

// findAbandonedInPublished finds what may go from PublishDir/<task>.
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
		return false, nil // at most the generation that is served
	}
	lock, err := tryLockDir(d.dir)
	if lock == nil {
		return true, err
	}
	defer unlock(lock)
	t.addAbandoned(d, entries)
	return false, d.addOldGenerations(t.Config.keepOld(), func(e fs.DirEntry) bool { return t.isAbandoned(d, e, isLocal(lock)) })
}

// tryLockDir takes a directory's lock. It returns nil if somebody has it, who is
// about to make or to replace something there.
func tryLockDir(dir *os.Root) (*os.File, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	if locked, err := tryLock(f); err == nil && !locked {
		f.Close()
		return nil, nil
	}
	return f, nil
}

// isUnfinishedDir reports whether a directory is one that an attempt works in, or
// that was being removed.
func isUnfinishedDir(e fs.DirEntry) bool {
	d, ok := parseDirName(e.Name())
	return ok && d.unfinished && e.IsDir() &&
		slices.Contains([]string{ingestStage, transcodeStage, metadataStage, assembleStage, generationPrefix}, d.stage)
}

func isPartialDownload(e fs.DirEntry) bool {
	return slices.Contains(partialDownloadFiles, e.Name()) && e.Type().IsRegular()
}

// addAbandoned dooms the directories of attempts that are not alive.
func (t *Cleaner) addAbandoned(d *removalList, entries []fs.DirEntry) {
	for _, e := range entries {
		if !isUnfinishedDir(e) {
			continue
		}
		f, err := d.dir.Open(e.Name())
		if err != nil {
			continue // somebody else was quicker
		}
		locked, err := tryLock(f)
		if err == nil && !locked {
			f.Close()
			continue
		}
		if !t.isAbandoned(d, e, err == nil && isLocal(f)) {
			unlock(f)
			continue
		}
		d.names, d.locks = append(d.names, e.Name()), append(d.locks, f)
	}
}

// isAbandoned reports whether nothing has been heard for long enough of whoever
// made an entry. Its lock is free; seen says that it would have been seen.
func (t *Cleaner) isAbandoned(d *removalList, e fs.DirEntry, seen bool) bool {
	quiet := t.MinIdle
	switch {
	case !seen:
		quiet = minIdleWithoutLocks
	case quiet < 0:
		return true
	case quiet == 0:
		quiet = defaultMinIdle
	}
	info, err := e.Info()
	return err == nil && olderThan(filepath.Join(d.path, e.Name()), info, quiet)
}

// addPartialDownload dooms an unfinished download that nobody has gone on with for long.
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
		// Whoever downloads holds its lock, and looks whether it is still there
		// once he has it.
		f, err := d.dir.OpenFile(partialDownload, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		if locked, err := tryLock(f); err == nil && !locked {
			f.Close()
			return
		}
		d.locks = append(d.locks, f)
	}
	d.names = append(d.names, names...)
}
