package video

import (
	"context"
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
	// attempt that makes no progress is left alone.
	defaultMinIdle = 2 * time.Hour
	// minIdleWithoutLocks is how long nothing must have been heard of an attempt whose lock
	// could not be seen if it were alive: that of another host, on a network
	// file system.
	minIdleWithoutLocks = 48 * time.Hour
	// partialDownloadAge is how long an unfinished download is kept for an attempt to
	// continue it.
	partialDownloadAge = 24 * time.Hour
	// maxTasksPerClean bounds one call of Tidy, per directory.
	maxTasksPerClean = 20_000
)

// Cleaner removes what attempts have left whose process was killed, or whose
// disk went away, before they could. It removes no more than
//
//   - working directories (*.tmp) of attempts that are dead: nobody holds their
//     lock, and nothing was heard of them for Quiet. On a file system other than
//     the usual ones of Linux, such as NFS, a lock may not be seen; there it
//     takes two days of silence. An attempt at work is heard of every minute,
//     and is stopped when it makes no progress for Config.Stall;
//   - unfinished downloads that nobody has continued for a day;
//   - generations in PublishDir that Config.KeepOld is over for, and generations
//     that were finished and never served;
//   - directories of tasks in which nothing was left but that.
//
// It never removes what is published, what a stage has finished, what it does
// not know by name, or anything by way of a symbolic link. It decides from the
// directories alone, without the database. All times that it goes by are an
// hour longer than said here, so that clocks may be wrong by as much.
//
// Any number of Tidiers may work in the same directories, on any hosts, beside
// attempts and each other. One is for one goroutine.
type Cleaner struct {
	Config Config

	// MinIdle is how long nothing must have been heard of an attempt whose lock
	// is free. Default 2 h, for the case that DataDir or PublishDir is this
	// host's own disk and exported to others, whose locks are not seen here.
	// Negative: the lock alone decides.
	MinIdle time.Duration

	lastTask, lastPublished string // where the last call ended
}

// CleanResult is what one call has removed.
type CleanResult struct {
	// Removed counts directories, with all that was in them, and files.
	Removed int
	// Bytes is what that freed, as far as hard links show it.
	Bytes int64
}

// Clean looks at 20,000 tasks in each of the two directories, the newest first,
// and goes on from there when it is called again. It ends early when ctx does.
// A directory that cannot be tidied does not keep it from others; the first
// such error is returned when it is through.
func (t *Cleaner) Clean(ctx context.Context) (CleanResult, error) {
	var done CleanResult
	err1 := t.cleanDir(ctx, "data", t.Config.DataDir, "tasks", &t.lastTask, t.findAbandonedInTask, &done)
	err2 := t.cleanDir(ctx, "publish", t.Config.PublishDir, ".", &t.lastPublished, t.findAbandonedInPublished, &done)
	return done, errors.Join(err1, err2)
}

// cleanDir tidies the directories of tasks in one place.
func (t *Cleaner) cleanDir(
	ctx context.Context, what, root, sub string, after *string,
	tidy func(*removalList) (busy bool, err error), done *CleanResult,
) error {
	if err := t.Config.checkRoot(what, root); err != nil {
		return fmt.Errorf("tidy: %w", err)
	}
	tasks, err := os.OpenRoot(filepath.Join(root, sub))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there was no task yet
	}
	if err != nil {
		return fmt.Errorf("tidy %s directory: %w", what, err)
	}
	defer tasks.Close()
	names, err := nextTaskNames(tasks, *after)
	if err != nil {
		return fmt.Errorf("tidy %s directory: %w", what, err)
	}
	var first error
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := cleanTask(ctx, tasks, name, tidy, done); err != nil && first == nil {
			first = fmt.Errorf("tidy %q: %w", filepath.Join(tasks.Name(), name), err)
		}
		*after = name
	}
	if len(names) < maxTasksPerClean {
		*after = ""
	}
	return first
}

// nextTaskNames are the tasks whose turn it is, the newest first: their ids begin
// with the time.
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

// cleanTask tidies one task's directory.
func cleanTask(ctx context.Context, tasks *os.Root, name string, tidy func(*removalList) (busy bool, err error), done *CleanResult) error {
	dir, err := openDir(tasks, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		return nil
	}
	if err != nil {
		return err
	}
	d := &removalList{path: filepath.Join(tasks.Name(), name), dir: dir}
	defer d.close()
	if busy, err := tidy(d); busy || err != nil {
		return err
	}
	n, err := d.remove(ctx, &done.Bytes, func() {})
	done.Removed += n
	if err != nil || n == 0 && !d.isOldAndEmpty() {
		return err
	}
	if tasks.Remove(name) == nil { // which it does only of an empty one
		done.Removed++
	}
	return nil
}

// isOldAndEmpty reports whether there is nothing in the directory, nor was for long.
func (d *removalList) isOldAndEmpty() bool {
	entries, err := readDir(d.dir)
	if err != nil || len(entries) > 0 {
		return false
	}
	info, err := d.dir.Stat(".")
	return err == nil && olderThan(d.path, info, minIdleWithoutLocks)
}
