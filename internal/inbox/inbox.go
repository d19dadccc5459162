package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options configure [Run]. Dirs and Submit are required.
type Options struct {
	// Dirs are the directories to watch.
	Dirs []string

	// Submit receives the files that are ready: at most 500, the longest unchanged
	// first. After it returns nil, a file is submitted again only if it changes. After
	// FileErrors, that is so for all files but those, which it receives again after six
	// times UnchangedFor.
	Submit func(ctx context.Context, files []File) error

	// UnchangedFor is how long a file must stay unchanged. It should be longer than the
	// pauses of the programs that write the files. Default 10 s.
	UnchangedFor time.Duration

	// PollInterval is the time between two scans. If a scan takes long, the wait is
	// nine times as long as the scan. Default 1 s.
	PollInterval time.Duration

	// Skip are directories that are not scanned wherever they appear, such as the
	// directory of published videos.
	Skip []string

	// OnError is called once when a directory cannot be read, and with a nil error when
	// it can be read again. For errors of Submit, dir is empty. For each of FileErrors it is
	// called once per version of the file, whose path is dir.
	OnError func(dir string, err error)
}

// FileErrors are errors of Submit by the path of their file. They do not keep other files back.
type FileErrors map[string]error

func (e FileErrors) Error() string {
	return fmt.Sprintf("%d files could not be submitted", len(e))
}

// File is a file that is ready.
type File struct {
	Path    string // begins with one of Options.Dirs
	Size    int64
	ModTime time.Time
}

// RequestPrefix begins every RequestID.
const RequestPrefix = "inbox:"

// RequestID returns an id that is the same for the same version of the same file.
func (f File) RequestID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", f.Path, f.Size, f.ModTime.UnixNano()))
	return RequestPrefix + hex.EncodeToString(sum[:16])
}

const maxBatch = 500 // files per Submit

// Run watches the directories until ctx ends. Then it returns nil.
func Run(ctx context.Context, o Options) error {
	if o.UnchangedFor <= 0 {
		o.UnchangedFor = 10 * time.Second
	}
	if o.PollInterval <= 0 {
		o.PollInterval = time.Second
	}
	if o.OnError == nil {
		o.OnError = func(string, error) {}
	}
	w := &watcher{Options: o, known: make(map[string]*knownFile), failing: make(map[string]bool)}
	for ctx.Err() == nil {
		began := time.Now()
		w.scan(ctx, began)
		w.submitReady(ctx, began)
		timer := time.NewTimer(max(o.PollInterval, 9*time.Since(began)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// watcher is the state of one Run. One goroutine uses it.
type watcher struct {
	Options
	known   map[string]*knownFile // by path
	failing map[string]bool       // by directory; "" is Submit
	scans   int
}

// knownFile is a file as the last scan saw it.
type knownFile struct {
	File
	firstSeen      time.Time // in this version
	unchangedScans int       // that saw this version
	lastScan       int       // the number of the last scan that saw it
	submitted      bool
	failed         time.Time // when Submit returned an error for this version
}

func (w *watcher) record(f File, now time.Time) {
	e := w.known[f.Path]
	if e == nil || e.Size != f.Size || !e.ModTime.Equal(f.ModTime) {
		e = &knownFile{File: f, firstSeen: now}
		w.known[f.Path] = e
	}
	e.unchangedScans++
	e.lastScan = w.scans
}

// isReady does not trust modification times alone: they may come from another host's
// clock. So the time must be in the past, and a second scan must have seen the same file.
func (w *watcher) isReady(e *knownFile, now time.Time) bool {
	if e.submitted || e.Size == 0 || e.lastScan != w.scans {
		return false
	}
	if !e.failed.IsZero() && now.Sub(e.failed) < 6*w.UnchangedFor {
		return false
	}
	return now.Sub(e.firstSeen) >= w.UnchangedFor || e.unchangedScans > 1 && now.Sub(e.ModTime) >= w.UnchangedFor
}

func (w *watcher) submitReady(ctx context.Context, now time.Time) {
	var due []*knownFile
	for _, e := range w.known {
		if w.isReady(e, now) {
			due = append(due, e)
		}
	}
	due = withoutOpenFiles(ctx, due)
	slices.SortFunc(due, func(a, b *knownFile) int {
		return cmp.Or(a.ModTime.Compare(b.ModTime), cmp.Compare(a.Path, b.Path))
	})
	for chunk := range slices.Chunk(due, maxBatch) {
		var files []File
		for _, e := range chunk {
			files = append(files, e.File)
		}
		err := w.Submit(ctx, files)
		if ctx.Err() != nil {
			return
		}
		failed, isOfFiles := errors.AsType[FileErrors](err)
		if isOfFiles {
			err = nil
		}
		w.setError("", err)
		if err != nil {
			return
		}
		for _, e := range chunk {
			w.recordSubmitted(e, failed[e.Path], now)
		}
	}
}

// recordSubmitted records that a file was submitted, or that it alone could not be.
func (w *watcher) recordSubmitted(e *knownFile, err error, now time.Time) {
	if err == nil {
		e.submitted = true
		return
	}
	if e.failed.IsZero() {
		w.OnError(e.Path, err)
	}
	e.failed = now
}

// withoutOpenFiles removes the files that are open for writing. One pass over the
// processes checks all files.
func withoutOpenFiles(ctx context.Context, due []*knownFile) []*knownFile {
	if len(due) == 0 {
		return nil
	}
	var paths []string
	for _, e := range due {
		paths = append(paths, e.Path)
	}
	open := openForWriting(ctx, paths)
	return slices.DeleteFunc(due, func(e *knownFile) bool { return open[e.Path] })
}

// setError calls OnError if dir begins or ceases to fail.
func (w *watcher) setError(dir string, err error) {
	if w.failing[dir] == (err != nil) {
		return
	}
	if err == nil {
		delete(w.failing, dir)
	} else {
		w.failing[dir] = true
	}
	w.OnError(dir, err)
}
