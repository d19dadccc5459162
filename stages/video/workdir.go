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
	"syscall"
)

// workdir is a directory that one attempt of one stage fills, and that takes
// its final name when it is complete.
//
// Its number is higher than that of any directory of the stage that exists
// when it is made: among attempts of one task, which are claimed one after the
// other, higher is newer. Its random part keeps two attempts apart even if one
// of them lost its claim and does not know. A lock is held on it for as long
// as the attempt lives; what nobody holds was left by a process that died.
type workdir struct {
	path   string // where it is now
	parent string
	mode   fs.FileMode
	dirName
	lock *os.File
}

// dirName is what the name of a stage's directory says.
type dirName struct {
	stage   string
	number  int
	random  string
	scratch bool // not complete
}

var dirNamePattern = regexp.MustCompile(`^([a-z]+)-(\d{4,9})-([a-z2-7]{10})(\.tmp)?$`)

func parseDirName(s string) (dirName, bool) {
	m := dirNamePattern.FindStringSubmatch(s)
	if m == nil {
		return dirName{}, false
	}
	n, err := strconv.Atoi(m[2])
	return dirName{stage: m[1], number: n, random: m[3], scratch: m[4] != ""}, err == nil
}

func (d dirName) String() string {
	s := fmt.Sprintf("%s-%04d-%s", d.stage, d.number, d.random)
	if d.scratch {
		s += ".tmp"
	}
	return s
}

// newWorkdir makes a directory for this attempt of stage and removes what dead
// ones have left in theirs. The caller defers its discard.
func newWorkdir(ctx context.Context, parent, stage string, mode fs.FileMode) (*workdir, error) {
	w := &workdir{parent: parent, mode: mode, dirName: dirName{
		stage: stage, number: 1, random: strings.ToLower(rand.Text()[:10]), scratch: true,
	}}
	older, err := w.make(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range older {
		if d.scratch {
			removeUnlocked(filepath.Join(parent, d.String()))
		}
	}
	return w, nil
}

// make makes the directory and returns those that were there before. It holds
// the parent's lock, so that no other attempt takes the new directory for a
// dead one's before its own lock is on it.
func (w *workdir) make(ctx context.Context) (older []dirName, err error) {
	lock, err := lockDir(ctx, w.parent)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
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

// finish syncs the directory with all that is in it and gives it its final
// name, which it returns. If it is to be served, everybody can read it then.
func (w *workdir) finish(ctx context.Context) (string, error) {
	if w.mode == servedMode {
		if err := serveTree(w.path); err != nil {
			return "", err
		}
	}
	if err := syncTree(ctx, w.path); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	done := w.dirName
	done.scratch = false
	path := filepath.Join(w.parent, done.String())
	if err := os.Rename(w.path, path); err != nil {
		return "", fmt.Errorf("finish working directory: %w", err)
	}
	w.dirName, w.path = done, path
	return done.String(), syncFile(w.parent)
}

// discard removes what is not finished. It does no harm when there is nothing
// to be removed, so that it can be deferred.
func (w *workdir) discard() {
	if w.scratch {
		os.RemoveAll(w.path)
	}
	w.lock.Close()
}

// retract removes the directory although it is finished.
func (w *workdir) retract() {
	removeTree(w.path)
	w.lock.Close()
}

// removeOlder removes the directories that earlier attempts of the stage have
// finished: nothing reads them once this one is the result.
func (w *workdir) removeOlder() {
	names, err := dirNames(w.parent, w.stage)
	if err != nil {
		return // they stay until the next time
	}
	for _, d := range names {
		if d.number < w.number {
			removeUnlocked(filepath.Join(w.parent, d.String()))
		}
	}
}

// removeUnlocked removes a directory unless an attempt holds it, and reports
// whether it is gone.
func removeUnlocked(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	if locked, err := tryLock(f); err != nil || !locked {
		return false
	}
	return removeTree(dir) == nil
}

// removeTree removes a directory under another name, so that nobody meets it
// half removed under its own.
func removeTree(dir string) error {
	if !strings.HasSuffix(dir, ".tmp") {
		if err := os.Rename(dir, dir+".tmp"); err != nil {
			return err
		}
		dir += ".tmp"
	}
	return os.RemoveAll(dir)
}

// tryLock takes the lock of an open file or directory, if nobody has it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
