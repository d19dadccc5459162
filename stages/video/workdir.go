package video

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/stages"
)

// workdir is a directory that one attempt of one stage fills, and that takes
// its final name when it is complete.
//
// Its number is higher than that of any directory of the stage that exists
// when it is made: among attempts of one task, which are claimed one after the
// other, higher is newer. Its random part keeps two attempts apart even if one
// of them lost its claim and does not know. A lock is held on it for as long
// as the attempt lives; what nobody holds was left by a process that died. For
// those who cannot see the lock, its time is brought up to date for as long as
// the attempt makes progress.
type workdir struct {
	path   string // where it is now
	parent string
	mode   fs.FileMode
	dirName
	lock *os.File
}

// touchEvery is how often a working directory is marked as one that somebody
// works in, at most.
const touchEvery = time.Minute

// dirName is what the name of a stage's directory says.
type dirName struct {
	stage      string
	number     int
	random     string
	unfinished bool // not complete
}

var dirNamePattern = regexp.MustCompile(`^([a-z]+)-(\d{4,9})-([a-z2-7]{10})(\.tmp)?$`)

func parseDirName(s string) (dirName, bool) {
	m := dirNamePattern.FindStringSubmatch(s)
	if m == nil {
		return dirName{}, false
	}
	n, err := strconv.Atoi(m[2])
	return dirName{stage: m[1], number: n, random: m[3], unfinished: m[4] != ""}, err == nil
}

func (d dirName) String() string {
	s := fmt.Sprintf("%s-%04d-%s", d.stage, d.number, d.random)
	if d.unfinished {
		s += ".tmp"
	}
	return s
}

// newWorkdir makes a directory for this attempt of stage and removes what dead
// ones have left in theirs. The caller defers its discard.
func newWorkdir(ctx context.Context, job *stages.Job, parent, stage string, mode fs.FileMode) (*workdir, error) {
	w := &workdir{parent: parent, mode: mode, dirName: dirName{
		stage: stage, number: 1, random: strings.ToLower(rand.Text()[:10]), unfinished: true,
	}}
	older, err := w.create(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range older {
		if d.unfinished {
			removeUnlocked(ctx, job, parent, d)
		}
	}
	return w, nil
}

// retryIfRemoved calls make, which makes a directory and one in it, once more if the
// directory was removed in between, because it was empty.
func retryIfRemoved(make func() (*workdir, error)) (*workdir, error) {
	w, err := make()
	if errors.Is(err, fs.ErrNotExist) {
		w, err = make()
	}
	return w, err
}

// create makes the directory and returns those that were there before. It holds
// the parent's lock, so that no other attempt takes the new directory for a
// dead one's before its own lock is on it.
func (w *workdir) create(ctx context.Context) (older []dirName, err error) {
	lock, err := lockDir(ctx, w.parent)
	if err != nil {
		return nil, err
	}
	defer unlock(lock)
	if older, err = dirNames(w.parent, w.stage); err != nil {
		return nil, err
	}
	for _, d := range older {
		w.number = max(w.number, d.number+1)
	}
	w.path = filepath.Join(w.parent, w.String())
	if err := os.Mkdir(w.path, w.mode); err != nil {
		return nil, fmt.Errorf("make working directory: %w", err)
	}
	if w.lock, err = os.Open(w.path); err != nil {
		os.Remove(w.path)
		return nil, fmt.Errorf("open working directory: %w", err)
	}
	// Where there are no locks, nobody removes what he cannot lock.
	_, _ = tryLock(w.lock)
	return older, nil
}

// dirNames lists the directories of stage in parent.
func dirNames(parent, stage string) ([]dirName, error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, fmt.Errorf("list directory: %w", err)
	}
	var names []dirName
	for _, e := range entries {
		if d, ok := parseDirName(e.Name()); ok && d.stage == stage && e.IsDir() {
			names = append(names, d)
		}
	}
	return names, nil
}

// withTouch is a job whose progress is a sign of life in the directory, too.
func (w *workdir) withTouch(job *stages.Job) *stages.Job {
	watched := *job
	var mu sync.Mutex
	touched := time.Now()
	watched.OnProgress = func(p stages.Progress) {
		job.Progress(p)
		mu.Lock()
		defer mu.Unlock()
		if w.unfinished && time.Since(touched) >= touchEvery {
			touched = time.Now()
			_ = touch(w.path) // what is wrong with the disk, the attempt will find out
		}
	}
	return &watched
}

// finish puts the directory on disk, with all that is in it, and gives it its
// final name, which it returns.
func (w *workdir) finish(ctx context.Context, job *stages.Job) (string, error) {
	if err := w.sync(ctx, job); err != nil {
		return "", err
	}
	if err := w.rename(); err != nil {
		return "", err
	}
	return w.String(), nil
}

// sync puts all that is in the directory on disk. If it is to be served,
// everybody can read it then.
func (w *workdir) sync(ctx context.Context, job *stages.Job) error {
	step := reportSteps(job, -1, "syncing").counter()
	if w.mode == servedMode {
		if err := makeTreeReadable(w.path, step); err != nil {
			return err
		}
	}
	if err := syncTree(ctx, w.path, step); err != nil {
		return err
	}
	return ctx.Err()
}

// rename gives the directory its final name.
func (w *workdir) rename() error {
	done := w.dirName
	done.unfinished = false
	path := filepath.Join(w.parent, done.String())
	if err := os.Rename(w.path, path); err != nil {
		return fmt.Errorf("finish working directory: %w", err)
	}
	w.dirName, w.path = done, path
	return syncFile(w.parent)
}

// discard removes what is not finished. It does no harm when there is nothing
// to be removed, so that it can be deferred.
func (w *workdir) discard() {
	if w.unfinished {
		os.RemoveAll(w.path)
	}
	unlock(w.lock)
}

// removeFinished removes the directory although it is finished.
func (w *workdir) removeFinished() {
	if !w.unfinished {
		scratch := w.dirName
		scratch.unfinished = true
		path := filepath.Join(w.parent, scratch.String())
		if os.Rename(w.path, path) != nil {
			return
		}
		w.dirName, w.path = scratch, path
	}
	w.discard()
}

// removeOlder removes the directories that attempts of a stage finished before
// the one that became its result, in the same parent. That is for the stages
// after it to do: an attempt that has lost its claim and does not know would
// remove the result of the one that has it now.
func removeOlder(ctx context.Context, job *stages.Job, parent, result string) {
	keep, ok := parseDirName(result)
	if !ok {
		return
	}
	names, err := dirNames(parent, keep.stage)
	if err != nil {
		return // they stay until the next time
	}
	for _, d := range names {
		if d.number < keep.number {
			removeUnlocked(ctx, job, parent, d)
		}
	}
}

// removeUnlocked removes a directory of an attempt unless one holds it. Whatever
// stands in the way, it stays for others to remove.
func removeUnlocked(ctx context.Context, job *stages.Job, parent string, d dirName) {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return
	}
	defer root.Close()
	f, err := root.Open(d.String())
	if err != nil {
		return
	}
	defer unlock(f)
	if locked, err := tryLock(f); err != nil || !locked {
		return
	}
	if name, err := renameUnfinished(root, d); err == nil {
		var freed int64
		_ = removeAll(ctx, root, name, &freed, reportSteps(job, -1, "removing").counter())
	}
}

// renameUnfinished gives a directory another name, so that nobody meets it half removed
// under its own.
func renameUnfinished(parent *os.Root, d dirName) (name string, err error) {
	name = d.String()
	if d.unfinished {
		return name, nil
	}
	d.unfinished = true
	return d.String(), parent.Rename(name, d.String())
}
