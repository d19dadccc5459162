package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// Options say what to watch and what to do. Dirs and Submit must be set.
type Options struct {
	// Dirs are the directories to watch.
	Dirs []string

	// Submit is handed the files that are ready, at most 500 at once, the
	// longest unchanged first. Those of a call that returned nil are not handed
	// over again until they change.
	Submit func(ctx context.Context, files []File) error

	// Settle is how long a file must stay as it is. It should be longer than
	// the pauses that whoever writes there makes. Default 10 s.
	Settle time.Duration

	// Every is the time between two looks. It grows with the time that a look
	// takes, so that looking never takes more than a tenth of all time. Default
	// 1 s.
	Every time.Duration

	// Skip are directories that are not looked into wherever they turn up,
	// such as the one in which the results are.
	Skip []string

	// Trouble is told, once, when a directory cannot be read or Submit fails,
	// then with an empty dir, and with a nil error when that is over.
	Trouble func(dir string, err error)
}

// File is a file that is ready.
type File struct {
	Path    string // a path in one of Options.Dirs
	Size    int64
	ModTime time.Time
}

// RequestID is the same for the same file, and different for others: see the
// package's documentation.
func (f File) RequestID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", f.Path, f.Size, f.ModTime.UnixNano()))
	return "inbox:" + hex.EncodeToString(sum[:16])
}

// batch is how many files Submit is handed at once.
const batch = 500

// Run watches until ctx is done, and then returns nil.
func Run(ctx context.Context, o Options) error {
	if o.Settle <= 0 {
		o.Settle = 10 * time.Second
	}
	if o.Every <= 0 {
		o.Every = time.Second
	}
	if o.Trouble == nil {
		o.Trouble = func(string, error) {}
	}
	w := &watcher{Options: o, known: make(map[string]*entry), troubled: make(map[string]bool)}
	for ctx.Err() == nil {
		began := time.Now()
		w.look(ctx, began)
		w.submit(ctx, began)
		timer := time.NewTimer(max(o.Every, 9*time.Since(began)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// watcher is what Run knows. One goroutine has it.
type watcher struct {
	Options
	known    map[string]*entry // by path
	troubled map[string]bool   // by directory; "" is Submit
	looks    int
}

// entry is a file as it was seen last.
type entry struct {
	File
	since  time.Time // when it was first seen like this
	times  int       // how often it has been seen like this
	look   int       // the look that saw it last
	handed bool
}

// saw notes a file.
func (w *watcher) saw(f File, now time.Time) {
	e := w.known[f.Path]
	if e == nil || e.Size != f.Size || !e.ModTime.Equal(f.ModTime) {
		e = &entry{File: f, since: now}
		w.known[f.Path] = e
	}
	e.times++
	e.look = w.looks
}

// ready: see the package's documentation. The times in the file system may be
// another computer's, so they are only believed if they lie in the past, and
// then only together with a second look.
func (w *watcher) ready(e *entry, now time.Time) bool {
	if e.handed || e.Size == 0 || e.look != w.looks {
		return false
	}
	return now.Sub(e.since) >= w.Settle || e.times > 1 && now.Sub(e.ModTime) >= w.Settle
}

func (w *watcher) submit(ctx context.Context, now time.Time) {
	var due []*entry
	for _, e := range w.known {
		if w.ready(e, now) {
			due = append(due, e)
		}
	}
	due = closed(ctx, due)
	slices.SortFunc(due, func(a, b *entry) int {
		return cmp.Or(a.ModTime.Compare(b.ModTime), cmp.Compare(a.Path, b.Path))
	})
	for chunk := range slices.Chunk(due, batch) {
		var files []File
		for _, e := range chunk {
			files = append(files, e.File)
		}
		err := w.Submit(ctx, files)
		if ctx.Err() != nil {
			return
		}
		w.trouble("", err)
		if err != nil {
			return
		}
		for _, e := range chunk {
			e.handed = true
		}
	}
}

// closed leaves out the files that somebody still has open for writing. Asking
// for all at once makes one pass over the processes of it, and only where there
// is something to hand over.
func closed(ctx context.Context, due []*entry) []*entry {
	if len(due) == 0 {
		return nil
	}
	var paths []string
	for _, e := range due {
		paths = append(paths, e.Path)
	}
	writing := beingWritten(ctx, paths)
	return slices.DeleteFunc(due, func(e *entry) bool { return writing[e.Path] })
}

// trouble tells of changes only.
func (w *watcher) trouble(dir string, err error) {
	if was := w.troubled[dir]; was == (err != nil) {
		return
	}
	if err == nil {
		delete(w.troubled, dir)
	} else {
		w.troubled[dir] = true
	}
	w.Trouble(dir, err)
}
