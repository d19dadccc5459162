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

	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// workdir is a directory that one attempt of a stage fills. It gets its final name
// when it is complete.
//
// Its number is higher than that of every existing directory of the stage. The
// attempts of a task are claimed one after the other, so higher is newer. Its
// random part separates two attempts if one of them lost its claim without
// noticing. The attempt holds a lock on it; a directory with a free lock belongs
// to a dead process. For hosts that cannot see the lock, the attempt touches the
// directory while it makes progress.
type workdir struct {
	path   string // current path
	parent string
	mode   fs.FileMode
	dirName
	lock *os.File
}

// touchEvery is the shortest time between two touches of a working directory.
const touchEvery = time.Minute

// resultStages are the stages in the names of directories, in an order in which later ones have files of earlier ones.
func resultStages() []string {
	return []string{ingestStage, chunkPrefix, transcodeStage, metadataStage, assembleStage, speechPrefix}
}

// dirName is the parsed name of a stage's directory.
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

// newWorkdir creates a directory for this attempt of stage and removes those of dead
// attempts. Its number is at least number. The caller defers discard.
func newWorkdir(
	ctx context.Context, job *stages.Job, parent, stage string, number int, mode fs.FileMode,
) (*workdir, error) {
	w := &workdir{parent: parent, mode: mode, dirName: dirName{
		stage: stage, number: number, random: randomName(), unfinished: true,
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

// randomName is the random part of a directory's name.
func randomName() string { return strings.ToLower(rand.Text()[:10]) }

// newWorkdirIn is newWorkdir in a directory that makeParent creates if necessary. It
// tries again if the directory was removed in between because it was empty.
func newWorkdirIn(
	ctx context.Context, job *stages.Job, makeParent func(store.ID) (string, error), stage string, number int, mode fs.FileMode,
) (w *workdir, err error) {
	for range 2 {
		var parent string
		if parent, err = makeParent(job.Task); err == nil {
			w, err = newWorkdir(ctx, job, parent, stage, number, mode)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return w, err
}

// create makes the directory and returns the older ones. It holds the parent's lock, so
// that no other attempt finds the new directory before it is locked.
func (w *workdir) create(ctx context.Context) (older []dirName, err error) {
	lock, err := lockDir(ctx, w.parent)
	if err != nil {
		return nil, err
	}
	defer flock.Unlock(lock)
	if older, err = dirNames(w.parent, w.stage); err != nil {
		return nil, err
	}
	for _, d := range older {
		w.number = max(w.number, d.number+1)
	}
	w.path = filepath.Join(w.parent, w.String())
	if err := os.Mkdir(w.path, w.mode); err != nil {
		return nil, fmt.Errorf("create working directory: %w", err)
	}
	if w.lock, err = os.Open(w.path); err != nil {
		os.Remove(w.path)
		return nil, fmt.Errorf("open working directory: %w", err)
	}
	// Without locks, no process removes a directory that it cannot lock.
	_, _ = flock.TryLock(w.lock, flock.Exclusive)
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

// withTouch returns a job whose progress also touches the directory.
func (w *workdir) withTouch(job *stages.Job) *stages.Job {
	touching := *job
	var mu sync.Mutex
	touched := time.Now()
	touching.OnProgress = func(p stages.Progress) {
		job.Progress(p)
		mu.Lock()
		defer mu.Unlock()
		if w.unfinished && time.Since(touched) >= touchEvery {
			touched = time.Now()
			_ = touch(w.path) // the attempt itself will notice errors of the disk
		}
	}
	return &touching
}

// finish syncs the directory to disk, gives it its final name, and returns that.
func (w *workdir) finish(ctx context.Context, job *stages.Job) (string, error) {
	if err := w.sync(ctx, job); err != nil {
		return "", err
	}
	if err := w.rename(); err != nil {
		return "", err
	}
	return w.String(), nil
}

// sync syncs the directory's content to disk. If it will be served, it first makes it
// readable for all.
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

// discard removes the directory if it is unfinished, and releases the lock. It may be
// deferred.
func (w *workdir) discard() {
	if w.unfinished {
		os.RemoveAll(w.path)
	}
	flock.Unlock(w.lock)
}

// removeFinished removes the directory even if it is finished.
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

// removeOlder removes finished directories of a stage that are older than its result.
// Only later stages may do so: an attempt that lost its claim without noticing would
// remove the result of the current one.
func removeOlder(ctx context.Context, job *stages.Job, parent, result string) {
	keep, ok := parseDirName(result)
	if !ok {
		return
	}
	names, err := dirNames(parent, keep.stage)
	if err != nil {
		return // a later attempt removes them
	}
	for _, d := range names {
		if d.number < keep.number {
			removeUnlocked(ctx, job, parent, d)
		}
	}
}

// removeUnlocked removes a directory of an attempt unless it is in use. If that
// fails, the directory stays for others to remove.
func removeUnlocked(ctx context.Context, job *stages.Job, parent string, d dirName) {
	root, err := os.OpenRoot(parent)
	if err != nil {
		return
	}
	defer root.Close()
	f, supported, _ := lockEntry(root, d.String())
	if f == nil {
		return
	}
	defer flock.Unlock(f)
	if !supported {
		return
	}
	if name, err := renameUnfinished(root, d); err == nil {
		var freed int64
		_ = removeAll(ctx, root, name, &freed, reportSteps(job, -1, "removing").counter())
	}
}

// renameUnfinished marks a directory as unfinished by its name, so that it is never
// visible half removed under its own name.
func renameUnfinished(parent *os.Root, d dirName) (name string, err error) {
	name = d.String()
	if d.unfinished {
		return name, nil
	}
	d.unfinished = true
	return d.String(), parent.Rename(name, d.String())
}
