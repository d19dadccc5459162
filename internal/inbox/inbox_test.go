package inbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/inbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testInbox is a watched directory and the files that were submitted from it.
type testInbox struct {
	t      *testing.T
	dir    string
	files  chan inbox.File
	errors chan error
	// refused are the files with an error of their own.
	refused chan inbox.File

	mu        sync.Mutex
	submitErr error
	stop      context.CancelFunc
	stopped   chan error
}

const (
	unchangedFor = 300 * time.Millisecond
	pollInterval = 20 * time.Millisecond
)

// watch runs a watcher on a new directory until the test ends.
func watch(t *testing.T, change func(*inbox.Options)) *testInbox {
	t.Helper()
	b := &testInbox{t: t, dir: t.TempDir(), files: make(chan inbox.File, 1000), errors: make(chan error, 100)}
	b.refused = make(chan inbox.File, 100)
	b.start(change)
	t.Cleanup(func() { b.stopAndWait() })
	return b
}

func (b *testInbox) start(change func(*inbox.Options)) {
	ctx, cancel := context.WithCancel(context.Background())
	o := inbox.Options{
		Dirs: []string{b.dir}, UnchangedFor: unchangedFor, PollInterval: pollInterval, Submit: b.submit,
		OnError: func(_ string, err error) { b.errors <- err },
	}
	if change != nil {
		change(&o)
	}
	b.stop, b.stopped = cancel, make(chan error, 1)
	go func() { b.stopped <- inbox.Run(ctx, o) }()
}

func (b *testInbox) stopAndWait() {
	b.stop()
	if err := <-b.stopped; err != nil {
		b.t.Errorf("Run returned %v", err)
	}
	b.stopped <- nil
}

func (b *testInbox) submit(_ context.Context, files []inbox.File) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	failed, isOfFiles := errors.AsType[inbox.FileErrors](b.submitErr)
	if b.submitErr != nil && !isOfFiles {
		return b.submitErr
	}
	for _, f := range files {
		if failed[f.Path] != nil {
			b.refused <- f
		} else {
			b.files <- f
		}
	}
	return b.submitErr
}

func (b *testInbox) setSubmitError(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.submitErr = err
}

// write creates a file with the modification time at.
func (b *testInbox) write(name, text string, at time.Time) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	// Create it elsewhere: a scan must not see it incomplete.
	temp := filepath.Join(b.t.TempDir(), "file")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chtimes(temp, at, at); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		b.t.Fatal(err)
	}
}

// next returns the next submitted file.
func (b *testInbox) next() inbox.File {
	b.t.Helper()
	select {
	case f := <-b.files:
		return f
	case <-time.After(20 * time.Second):
		b.t.Fatal("no file was submitted")
		return inbox.File{}
	}
}

// nextName returns the path of the next submitted file, relative to the directory.
func (b *testInbox) nextName() string {
	b.t.Helper()
	rel, err := filepath.Rel(b.dir, b.next().Path)
	if err != nil {
		b.t.Fatal(err)
	}
	return rel
}

var longAgo = time.Now().Add(-time.Hour)

func TestRun_SubmitsARenamedFileImmediately(t *testing.T) {
	t.Parallel()
	b := watch(t, func(o *inbox.Options) { o.UnchangedFor = time.Hour / 2 })
	b.write("a.mp4", "video", longAgo)
	if f := b.next(); f.Path != filepath.Join(b.dir, "a.mp4") || f.Size != 5 {
		t.Errorf("submitted %+v", f)
	}
}

func TestRun_WaitsWhileAFileGrows(t *testing.T) {
	t.Parallel()
	b := watch(t, func(o *inbox.Options) { o.UnchangedFor = 10 * unchangedFor }) // long, for a busy machine
	const steps = 20
	for range steps {
		// Close the file each time. A writer on another host looks like that here.
		f, err := os.OpenFile(filepath.Join(b.dir, "a.mp4"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("more")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(unchangedFor / 10) // as a slow writer
	}
	if got := b.next(); got.Size != 4*steps {
		t.Errorf("submitted at %d bytes of %d", got.Size, 4*steps)
	}
}

func TestRun_SubmitsAFileOncePerVersion(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	b.write("a.mp4", "one", longAgo)
	first := b.next()
	b.write("b.mp4", "one", longAgo) // its submission proves that another scan happened
	if b.nextName() != "b.mp4" {
		t.Error("a.mp4 was submitted twice")
	}
	b.write("a.mp4", "two", longAgo.Add(time.Minute))
	second := b.next()
	if second.Path != first.Path {
		t.Errorf("submitted %+v", second)
	}
	if first.RequestID() == second.RequestID() {
		t.Error("a replaced file kept its request id")
	}
}

func TestRun_KeepsTheRequestIDAcrossRestarts(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	b.write("a.mp4", "video", longAgo)
	first := b.next()
	b.stopAndWait()
	b.start(nil)
	if second := b.next(); second.RequestID() != first.RequestID() {
		t.Errorf("%s, then %s", first.RequestID(), second.RequestID())
	}
}

func TestRun_IgnoresUnfinishedHiddenAndEmptyFiles(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	for _, name := range []string{
		".hidden.mp4", ".dir/a.mp4", "a.mp4.part", "a.PART", "b.tmp", "c.crdownload", "~d.mp4", "e.mp4~", "f.download/f.mp4",
	} {
		b.write(name, "video", longAgo)
	}
	b.write("empty.mp4", "", longAgo)
	if err := os.Symlink("/", filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.dir, "dir.mp4"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A scan that sees this file has seen those above.
	b.write("z.mp4", "video", longAgo)
	if got := b.nextName(); got != "z.mp4" {
		t.Errorf("%s was submitted", got)
	}
	b.stopAndWait()
	if len(b.files) > 0 {
		t.Errorf("%s was submitted", b.nextName())
	}
}

func TestRun_IgnoresNamesOfOtherFileTypes(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	for _, name := range []string{
		"readme.txt", "README", "film.SRT", "folder.jpg", "film.nfo", "all.zip", "film.md5", "Thumbs.db",
	} {
		b.write(name, "text", longAgo)
	}
	b.write("film", "video", longAgo)
	if got := b.nextName(); got != "film" {
		t.Errorf("%s was submitted", got)
	}
	b.write("film.odd", "video", longAgo)
	if got := b.nextName(); got != "film.odd" {
		t.Errorf("%s was submitted", got)
	}
	b.stopAndWait()
	if len(b.files) > 0 {
		t.Errorf("%s was submitted", b.nextName())
	}
}

func TestRun_ScansSubdirectoriesExceptSkippedOnes(t *testing.T) {
	t.Parallel()
	b := watch(t, func(o *inbox.Options) { o.Skip = []string{filepath.Join(o.Dirs[0], "published")} })
	b.write("published/own.mp4", "video", longAgo)
	b.write("deep/down/a.mp4", "video", longAgo)
	if got := b.nextName(); got != "deep/down/a.mp4" {
		t.Errorf("%s was submitted", got)
	}
	b.stopAndWait()
	if len(b.files) > 0 {
		t.Errorf("%s was submitted", b.nextName())
	}
}

func TestRun_FollowsAWatchedDirectoryThatIsALink(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "link")
	b := watch(t, func(o *inbox.Options) {
		if err := os.Symlink(o.Dirs[0], link); err != nil {
			t.Fatal(err)
		}
		o.Dirs = []string{link}
	})
	b.write("a.mp4", "video", longAgo)
	if got := b.next().Path; got != filepath.Join(link, "a.mp4") {
		t.Errorf("%s was submitted", got)
	}
}

func TestRun_RetriesAFailedSubmit(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	down := errors.New("database is down")
	b.setSubmitError(down)
	b.write("a.mp4", "video", longAgo)
	if err := <-b.errors; !errors.Is(err, down) {
		t.Fatalf("the error is %v", err)
	}
	b.setSubmitError(nil)
	if got := b.nextName(); got != "a.mp4" {
		t.Errorf("%s was submitted", got)
	}
	if err := <-b.errors; err != nil {
		t.Errorf("after the recovery, the error is %v", err)
	}
}

func TestRun_SubmitsOtherFilesAfterAnErrorOfOne(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	bad := filepath.Join(b.dir, "bad.mp4")
	unreadable := errors.New("permission denied")
	b.setSubmitError(inbox.FileErrors{bad: unreadable})
	b.write("bad.mp4", "video", longAgo)
	b.write("good.mp4", "video", longAgo.Add(time.Minute))
	if err := <-b.errors; !errors.Is(err, unreadable) {
		t.Fatalf("the error is %v", err)
	}
	if got := b.nextName(); got != "good.mp4" {
		t.Errorf("%s was submitted", got)
	}
	<-b.refused
	<-b.refused // it is tried again
	b.setSubmitError(nil)
	if got := b.nextName(); got != "bad.mp4" {
		t.Errorf("then %s was submitted", got)
	}
	if len(b.errors) > 0 {
		t.Errorf("the next error is %v", <-b.errors)
	}
}

func TestRun_ReportsAMissingDirectoryOnceAndRemembersItsFiles(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	b.write("a.mp4", "video", longAgo)
	b.next()
	moved := b.dir + "-away"
	if err := os.Rename(b.dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := <-b.errors; !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the error is %v", err)
	}
	if err := os.Rename(moved, b.dir); err != nil {
		t.Fatal(err)
	}
	if err := <-b.errors; err != nil {
		t.Fatalf("the error is %v", err)
	}
	b.write("b.mp4", "video", longAgo)
	if got := b.nextName(); got != "b.mp4" {
		t.Errorf("%s was submitted again", got)
	}
}

func TestRun_SubmitsManyFilesInBatchesOldestFirst(t *testing.T) {
	t.Parallel()
	b := &testInbox{t: t, dir: t.TempDir(), errors: make(chan error, 1)}
	const n = 1200
	for i := range n {
		path := filepath.Join(b.dir, "v"+string(rune('a'+i%26)), time.Duration(i).String()+".mp4")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("video"), 0o644); err != nil {
			t.Fatal(err)
		}
		at := longAgo.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	batches := make(chan []inbox.File, 10)
	b.start(func(o *inbox.Options) {
		o.Submit = func(_ context.Context, files []inbox.File) error {
			batches <- slices.Clone(files)
			return nil
		}
	})
	defer b.stopAndWait()
	var all []inbox.File
	for len(all) < n {
		got := <-batches
		if len(got) > 500 {
			t.Errorf("%d files in one batch", len(got))
		}
		all = append(all, got...)
	}
	if !slices.IsSortedFunc(all, func(a, b inbox.File) int { return a.ModTime.Compare(b.ModTime) }) {
		t.Error("the files are not sorted by age")
	}
}
