package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

const (
	// defaultMinIdle is longer than a clock may be wrong, and much longer than an
	// attempt may make no progress.
	defaultMinIdle = 2 * time.Hour
	// minIdleWithoutLocks applies to an attempt whose lock might not be visible,
	// because it runs on another host with a network file system.
	minIdleWithoutLocks = 48 * time.Hour
	// partialDownloadAge is how long an unfinished download stays for another
	// attempt.
	partialDownloadAge = 24 * time.Hour
	// maxTasksPerClean limits one call of Clean, per directory.
	maxTasksPerClean = 20_000
)

// Cleaner removes what attempts left because their process was killed or their
// disk disappeared. It removes only
//
//   - working directories (*.tmp) of dead attempts: their lock is free, and they
//     were not touched for MinIdle. On other than the usual file systems of
//     Linux, such as NFS, a lock may not be visible; there it takes two days. An
//     attempt touches its directory every minute, and is cancelled when it makes
//     no progress for Config.Stall;
//   - unfinished downloads that were not continued for a day;
//   - generations in PublishDir older than Config.KeepOld, and generations that
//     were finished but never served;
//   - directories of tasks that contained only these;
//   - what stages made of tasks that were completed Config.KeepSourceCopies ago,
//     if that is set. The database says which.
//
// It never removes published videos, other finished results, unknown names, or anything
// through a symbolic link. It decides the rest from the directories alone, without the
// database. It adds an hour to all times, because clocks may be wrong.
//
// In buckets, by the service's clock, it removes artifacts without a manifest, with
// their unfinished uploads, a day after the last byte arrived; replaced generations
// older than Config.KeepOld; and results older than the recorded one, after a day. With
// a bucket for data, it removes copies in DataDir that no attempt has used for 15 minutes.
//
// Any number of Cleaners may work in the same directories, on any hosts, together
// with attempts. Goroutines must not share one.
type Cleaner struct {
	Config Config

	// MinIdle is how long a directory with a free lock must be untouched. Default
	// 2 h, in case DataDir or PublishDir is a local disk that is exported to other
	// hosts, whose locks are not visible here. Negative: the lock alone decides.
	MinIdle time.Duration

	// Results reads the recorded result of a stage, as store.Store.Result does. Without it, older
	// results in a bucket stay if the attempt that should have deleted them could not.
	Results func(ctx context.Context, task store.ID, stage string) (json.RawMessage, error)

	// Completed returns those of some tasks that were completed at least so long ago, as store.Store.Completed does.
	// Without it, Config.KeepSourceCopies has no effect.
	Completed func(ctx context.Context, tasks []store.ID, ago time.Duration) ([]store.ID, error)

	sourceCopiesRemoved     time.Time  // the last time
	lastTask, lastPublished string     // where the last call ended
	inData, inPublished     bucketPass // where it ended in the buckets
}

// CleanResult is what one call of Clean removed.
type CleanResult struct {
	// Removed counts directories with their content, and files.
	Removed int
	// Bytes is the freed space on disks, not counting files with other hard links.
	Bytes int64
	// SourceCopies counts the tasks of which it removed what stages made, because of Config.KeepSourceCopies. Removed and
	// Bytes include this.
	SourceCopies int
}

// Clean inspects up to 20,000 tasks in each of the two directories, the newest
// first, and continues there on the next call; in each bucket 200, and all of them
// at most every 6 hours. At most every hour it searches for old copies of sources. It stops early when ctx ends. An
// error with one task does not stop it; it returns the first such error.
func (t *Cleaner) Clean(ctx context.Context) (CleanResult, error) {
	var done CleanResult
	err1 := t.cleanDir(ctx, "data", t.Config.DataDir, t.Config.tasksDir(), &t.lastTask, t.findAbandonedInTask, &done)
	err2 := t.cleanDir(ctx, "publish", t.Config.PublishDir, t.Config.PublishDir, &t.lastPublished, t.findAbandonedInPublished, &done)
	if t.Config.Bucket != nil {
		t.Config.bucketResults().scratch.removeUnused()
	}
	err3 := t.cleanBucket(ctx, t.Config.DataLocation(), tasksName, &t.inData, t.cleanResults, &done)
	err4 := t.cleanBucket(ctx, t.Config.PublishLocation(), "", &t.inPublished, t.cleanGenerations, &done)
	err5 := t.removeSourceCopies(ctx, &done)
	return done, errors.Join(err1, err2, err3, err4, err5)
}

// cleanDir cleans the tasks in one directory.
func (t *Cleaner) cleanDir(
	ctx context.Context, what, root, dir string, after *string,
	find func(*removalList) (busy bool, err error), done *CleanResult,
) error {
	if err := t.Config.checkRoot(what, root); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	tasks, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is no task yet
	}
	if err != nil {
		return fmt.Errorf("clean up %s directory: %w", what, err)
	}
	defer tasks.Close()
	names, err := nextTaskNames(tasks, *after)
	if err != nil {
		return fmt.Errorf("clean up %s directory: %w", what, err)
	}
	var first error
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := cleanTask(ctx, tasks, name, find, done); err != nil && first == nil {
			first = fmt.Errorf("clean up %q: %w", filepath.Join(tasks.Name(), name), err)
		}
		*after = name
	}
	if len(names) < maxTasksPerClean {
		*after = ""
	}
	return first
}

// nextTaskNames lists the next tasks, the newest first; their ids start with the time.
func nextTaskNames(tasks *os.Root, after string) ([]string, error) {
	f, err := tasks.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		id, err := store.ParseID(name)
		return err != nil || id.String() != name || after != "" && name >= after
	})
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	return names[:min(len(names), maxTasksPerClean)], nil
}

// cleanTask cleans one task's directory.
func cleanTask(
	ctx context.Context, tasks *os.Root, name string, find func(*removalList) (busy bool, err error), done *CleanResult,
) error {
	dir, err := openDir(tasks, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		return nil
	}
	if err != nil {
		return err
	}
	d := &removalList{path: filepath.Join(tasks.Name(), name), dir: dir}
	defer d.close()
	if busy, err := find(d); busy || err != nil {
		return err
	}
	n, err := d.remove(ctx, &done.Bytes, func() {})
	done.Removed += n
	if err != nil || n == 0 && !d.isOldAndEmpty() {
		return err
	}
	if tasks.Remove(name) == nil { // succeeds only if it is empty
		done.Removed++
	}
	return nil
}

// isOldAndEmpty reports whether the directory has been empty for long.
func (d *removalList) isOldAndEmpty() bool {
	entries, err := readDir(d.dir)
	if err != nil || len(entries) > 0 {
		return false
	}
	info, err := d.dir.Stat(".")
	return err == nil && olderThan(d.path, info, minIdleWithoutLocks)
}
