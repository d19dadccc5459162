package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/blockcache"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// scratch is the scratch space of this process: DataDir, where the results are elsewhere. It has the
// files of running attempts, and copies of results that attempts have used.
type scratch struct {
	config Config
	keep   time.Duration     // how long the copies of a task stay after their last use
	blocks *blockcache.Cache // on the same disk; may be nil

	mu      sync.Mutex // guards the rest
	users   map[store.ID][]*attemptNeed
	trimmed time.Time // when trim ran last
}

// attemptNeed is how many bytes an attempt may write.
type attemptNeed struct{ bytes int64 }

const (
	// scratchAge is how long the copies of a task in a bucket stay after their last use: the next
	// stage may run here, too.
	scratchAge = 15 * time.Minute
	// trimInterval is the shortest time between two searches for copies that nobody uses.
	trimInterval = time.Minute
	// minScratchAge is the age of copies that can make room for an attempt: other processes of this
	// host that use the directory touch theirs every minute.
	minScratchAge = 2 * touchEvery
	// scratchWait is how long an attempt that finds no room waits at most.
	scratchWait = 30 * time.Second
)

// scratchFullError says that an attempt does not fit into the scratch space now. Its numbers are
// bytes; limit and used are those of attempts, without blocks of sources.
type scratchFullError struct {
	dir               string
	need, used, limit int64
}

func (e *scratchFullError) Error() string {
	if e.need > e.limit {
		return fmt.Sprintf("the attempt may need %s of scratch space, and attempts may have %s in %q; raise --scratch-limit",
			diskspace.Format(e.need), diskspace.Format(e.limit), e.dir)
	}
	return fmt.Sprintf("the attempt waits for scratch space: it may need %s, and %s of %s in %q are in use",
		diskspace.Format(e.need), diskspace.Format(e.used), diskspace.Format(e.limit), e.dir)
}

// newScratch returns the scratch space of a process, which may have a block cache, too.
func newScratch(c Config, keep time.Duration, blocks *blockcache.Cache) *scratch {
	return &scratch{config: c, keep: keep, blocks: blocks, users: make(map[store.ID][]*attemptNeed)}
}

// newBlockCache returns a cache of blocks of sources in DataDir.
func (c Config) newBlockCache() *blockcache.Cache {
	return blockcache.New(c.DataDir, c.blockCacheLimit(), func(dir string, bytes int64) error {
		return diskspace.Check(dir, bytes, c.reserve())
	})
}

// blockCacheLimit is how many bytes of sources the block cache keeps.
func (c Config) blockCacheLimit() int64 {
	const most = 8 << 30
	if c.ScratchLimit > 0 {
		return min(most, c.ScratchLimit/4)
	}
	return most
}

// use keeps the files of a task for an attempt that may write need bytes, until done is called. It
// removes copies that nobody uses if they take the room, those first whose last use is the longest
// ago. If there is no room, the error is a *scratchFullError or a *diskspace.FullError.
//
// Until done is called it touches the directory of the task, because a transfer may take long and
// changes nothing in it: other processes of this host would take the files for copies that nobody uses.
func (s *scratch) use(task store.ID, need int64) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	attempt := &attemptNeed{need}
	s.users[task] = append(s.users[task], attempt)
	if need > 0 {
		err = s.makeRoom(task, need)
	}
	if err != nil {
		s.remove(task, attempt)
		return nil, err
	}
	stop := s.keepTouched(task)
	return func() {
		stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove(task, attempt)
		if s.keep == 0 && len(s.users[task]) == 0 {
			_ = os.RemoveAll(s.config.TaskDir(task)) // the next start removes the rest
		}
		if s.keep > 0 && time.Since(s.trimmed) > trimInterval {
			s.trimmed = time.Now()
			s.trim()
		}
	}, nil
}

// keepTouched touches the directory of a task now and every minute, until stop is called.
func (s *scratch) keepTouched(task store.ID) (stop func()) {
	dir := s.config.TaskDir(task)
	_ = touch(dir) // it may not exist yet, and the attempt finds errors of the disk
	ctx, cancel := context.WithCancel(context.Background())
	var touching sync.WaitGroup
	touching.Go(func() {
		for ctxsleep.For(ctx, touchEvery) == nil {
			_ = touch(dir)
		}
	})
	return func() { cancel(); touching.Wait() }
}

// remove ends the use of a task by an attempt. The lock is held.
func (s *scratch) remove(task store.ID, attempt *attemptNeed) {
	s.users[task] = slices.DeleteFunc(s.users[task], func(a *attemptNeed) bool { return a == attempt })
	if len(s.users[task]) == 0 {
		delete(s.users, task)
	}
}

// scratchTask is what a task has in the scratch space.
type scratchTask struct {
	id      store.ID
	path    string
	bytes   int64
	changed time.Time // the latest time of its directory and their entries
	need    int64     // of its running attempts
}

// isIdle reports whether no attempt of this process uses the task.
func (s *scratch) isIdle(t scratchTask) bool { return len(s.users[t.id]) == 0 }

// tasks lists the tasks in the scratch space, the least recently used first, and those that will be
// there. The lock is held.
func (s *scratch) tasks() (all []scratchTask, err error) {
	root := s.config.tasksDir()
	found, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read scratch space: %w", err)
	}
	present := make(map[store.ID]bool)
	for _, e := range found {
		id, err := store.ParseID(e.Name())
		if err != nil {
			continue
		}
		t := scratchTask{id: id, path: filepath.Join(root, e.Name())}
		entries, _ := os.ReadDir(t.path) // without entries nothing is removed
		t.changed = lastChange(t.path, entries)
		// A file that disappears meanwhile takes no space.
		_, t.bytes, _ = measureTree(t.path, func() {})
		present[id] = true
		all = append(all, t)
	}
	for id := range s.users {
		if !present[id] {
			all = append(all, scratchTask{id: id})
		}
	}
	for i := range all {
		for _, a := range s.users[all[i].id] {
			all[i].need += a.bytes
		}
	}
	slices.SortFunc(all, func(x, y scratchTask) int { return x.changed.Compare(y.changed) })
	return all, nil
}

// makeRoom removes copies until the attempts that use the scratch space fit. The lock is held.
func (s *scratch) makeRoom(task store.ID, need int64) error {
	all, err := s.tasks()
	if err != nil {
		return err
	}
	missing := func() error { return s.checkRoom(all, task, need) }
	err = missing()
	for i := 0; err != nil && i < len(all); i++ {
		if t := all[i]; s.isIdle(t) && time.Since(t.changed) > minScratchAge {
			removeCopies(t.path)
			_, all[i].bytes, _ = measureTree(t.path, func() {})
			err = missing()
		}
	}
	// Blocks have their own part of the limit: without them, only the disk has more room.
	if _, isFull := errors.AsType[*diskspace.FullError](err); isFull && s.blocks != nil {
		err = errors.Join(s.blocks.Clear(), missing())
	}
	return err
}

// checkRoom returns an error if the attempts that use the scratch space do not fit into it.
func (s *scratch) checkRoom(all []scratchTask, task store.ID, need int64) error {
	used, promised := int64(0), int64(0)
	for _, t := range all {
		used += max(t.bytes, t.need)
		promised += max(0, t.need-t.bytes)
	}
	if limit := s.limit(); limit > 0 && used > limit {
		return &scratchFullError{dir: s.config.DataDir, need: need, used: used - need, limit: limit}
	}
	free, size, err := diskspace.Free(s.config.DataDir)
	if reserve := s.config.reserve(); err == nil && free < promised+reserve {
		return &diskspace.FullError{Dir: s.config.DataDir, Need: need, Reserve: reserve, Free: max(0, free-(promised-need)), Size: size}
	}
	return nil
}

// limit is how many bytes attempts and copies may have, or 0 if there is no limit. Blocks of sources have the
// rest of ScratchLimit, also while there are none: running attempts read through them.
func (s *scratch) limit() int64 {
	if s.config.ScratchLimit == 0 || s.blocks == nil {
		return s.config.ScratchLimit
	}
	return s.config.ScratchLimit - s.config.blockCacheLimit()
}

// removeUnused is trim for a Cleaner: without attempts that end, nothing else calls that.
func (s *scratch) removeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimmed = time.Now()
	s.trim()
}

// trim removes the copies of tasks that were not used for long. The lock is held.
func (s *scratch) trim() {
	all, err := s.tasks()
	if err != nil {
		return // the next call tries again
	}
	for _, t := range all {
		if s.isIdle(t) && time.Since(t.changed) >= s.keep {
			removeCopies(t.path)
		}
	}
}

// removeCopies removes what a task has in the scratch space, except unfinished directories and
// downloads, which other attempts or a Cleaner need.
func removeCopies(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if d, ok := parseDirName(e.Name()); ok && !d.unfinished {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir) // if it is empty
}

// lastChange is the latest time of a directory and its entries. Attempts of other processes touch
// theirs every minute.
func lastChange(dir string, entries []fs.DirEntry) (latest time.Time) {
	infos := make([]fs.FileInfo, 0, len(entries)+1)
	if info, err := os.Stat(dir); err == nil {
		infos = append(infos, info)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	for _, info := range infos {
		if info.ModTime().After(latest) {
			latest = info.ModTime()
		}
	}
	return latest
}

// scratchNeed is how many bytes an attempt of a stage may write to the scratch space. Of a source with
// an unknown size, ingest checks the disk when it knows the size.
func (c Config) scratchNeed(ctx context.Context, job *stages.Job, stage string) (int64, error) {
	if stage == ingestStage {
		if _, _, ok := c.Bucket.storedSource(job.Source); ok {
			size, _, err := c.Bucket.SourceDigest(ctx, job.Source)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // ingest looks for another copy
			}
			return size, err
		}
		info, err := os.Stat(job.Source)
		if err != nil || !info.Mode().IsRegular() {
			return 0, nil
		}
		return info.Size(), nil
	}
	in, err := stages.Result[Ingest](ctx, job, ingestStage)
	if err != nil || in.Info == nil {
		return 0, err
	}
	need := int64(0)
	if stage != metadataStage && (stage != publishStage || len(c.neededStages(stage)) > 0) {
		var spec chunkSpec
		if job.Part > 0 {
			if spec, err = stages.Spec[chunkSpec](job); err != nil {
				return 0, err
			}
		}
		need = in.chunkSize(spec)
	}
	isJoin := job.Parts > 0 && job.Part == 0
	if !isJoin && c.fetchesSource(in) {
		need += in.Bytes
	}
	return need + smallFiles, nil
}

// smallFiles is more than an attempt needs for pictures and lists.
const smallFiles = 16 << 20
