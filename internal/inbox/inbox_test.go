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

// box is a watched directory, and what was handed over from it.
type box struct {
	t       *testing.T
	dir     string
	files   chan inbox.File
	trouble chan error

	mu      sync.Mutex
	refuse  error
	stop    context.CancelFunc
	stopped chan error
}

const (
	settle = 300 * time.Millisecond
	every  = 20 * time.Millisecond
)

// watch watches a new directory until the test ends.
func watch(t *testing.T, change func(*inbox.Options)) *box {
	t.Helper()
	b := &box{t: t, dir: t.TempDir(), files: make(chan inbox.File, 1000), trouble: make(chan error, 100)}
	b.start(change)
	t.Cleanup(func() { b.end() })
	return b
}

func (b *box) start(change func(*inbox.Options)) {
	ctx, cancel := context.WithCancel(context.Background())
	o := inbox.Options{
		Dirs: []string{b.dir}, Settle: settle, Every: every, Submit: b.submit,
		Trouble: func(_ string, err error) { b.trouble <- err },
	}
	if change != nil {
		change(&o)
	}
	b.stop, b.stopped = cancel, make(chan error, 1)
	go func() { b.stopped <- inbox.Run(ctx, o) }()
}

func (b *box) end() {
	b.stop()
	if err := <-b.stopped; err != nil {
		b.t.Errorf("Run returned %v", err)
	}
	b.stopped <- nil
}

func (b *box) submit(_ context.Context, files []inbox.File) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return b.refuse
	}
	for _, f := range files {
		b.files <- f
	}
	return nil
}

func (b *box) setRefuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

// write puts a file there that was last written at the given time.
func (b *box) write(name, text string, at time.Time) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	// Elsewhere first: in the watched directory it would be seen half done.
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

// next is the next file that is handed over.
func (b *box) next() inbox.File {
	b.t.Helper()
	select {
	case f := <-b.files:
		return f
	case <-time.After(20 * time.Second):
		b.t.Fatal("no file was handed over")
		return inbox.File{}
	}
}

// name is next's path in the directory.
func (b *box) name() string {
	b.t.Helper()
	rel, err := filepath.Rel(b.dir, b.next().Path)
	if err != nil {
		b.t.Fatal(err)
	}
	return rel
}

var longAgo = time.Now().Add(-time.Hour)

func TestAFileRenamedIntoPlaceIsHandedOverAtOnce(t *testing.T) {
	t.Parallel()
	b := watch(t, func(o *inbox.Options) { o.Settle = time.Hour / 2 })
	b.write("a.mp4", "video", longAgo)
	if f := b.next(); f.Path != filepath.Join(b.dir, "a.mp4") || f.Size != 5 {
		t.Errorf("handed over %+v", f)
	}
}

func TestAFileIsNotHandedOverWhileItGrows(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	const steps = 20
	for range steps {
		// Closed in between, as by a program on another host, for all that can
		// be seen from here.
		f, err := os.OpenFile(filepath.Join(b.dir, "a.mp4"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("more")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settle / 10) // the writer's pace
	}
	if got := b.next(); got.Size != 4*steps {
		t.Errorf("handed over at %d bytes of %d", got.Size, 4*steps)
	}
}

func TestAFileIsHandedOverOnceUntilItChanges(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	b.write("a.mp4", "one", longAgo)
	first := b.next()
	b.write("b.mp4", "one", longAgo) // proof that there were further looks
	if b.name() != "b.mp4" {
		t.Error("a.mp4 was handed over twice")
	}
	b.write("a.mp4", "two", longAgo.Add(time.Minute))
	second := b.next()
	if second.Path != first.Path {
		t.Errorf("handed over %+v", second)
	}
	if first.RequestID() == second.RequestID() {
		t.Error("a file that replaced another has its request id")
	}
}

func TestTheRequestIDSurvivesARestart(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	b.write("a.mp4", "video", longAgo)
	first := b.next()
	b.end()
	b.start(nil)
	if second := b.next(); second.RequestID() != first.RequestID() {
		t.Errorf("%s, then %s", first.RequestID(), second.RequestID())
	}
}

func TestUnfinishedHiddenAndEmptyFilesArePassedOver(t *testing.T) {
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
	// Those above were seen no later than this one.
	b.write("z.mp4", "video", longAgo)
	if got := b.name(); got != "z.mp4" {
		t.Errorf("%s was handed over", got)
	}
	b.end()
	if len(b.files) > 0 {
		t.Errorf("%s was handed over", b.name())
	}
}

func TestFilesThatAreNoVideosByNameArePassedOver(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	for _, name := range []string{"readme.txt", "README", "film.SRT", "folder.jpg", "film.nfo", "all.zip", "film.md5", "Thumbs.db"} {
		b.write(name, "text", longAgo)
	}
	b.write("film", "video", longAgo)
	if got := b.name(); got != "film" {
		t.Errorf("%s was handed over", got)
	}
	b.write("film.odd", "video", longAgo)
	if got := b.name(); got != "film.odd" {
		t.Errorf("%s was handed over", got)
	}
	b.end()
	if len(b.files) > 0 {
		t.Errorf("%s was handed over", b.name())
	}
}

func TestSubdirectoriesAreLookedIntoUnlessSkipped(t *testing.T) {
	t.Parallel()
	b := watch(t, func(o *inbox.Options) { o.Skip = []string{filepath.Join(o.Dirs[0], "published")} })
	b.write("published/own.mp4", "video", longAgo)
	b.write("deep/down/a.mp4", "video", longAgo)
	if got := b.name(); got != "deep/down/a.mp4" {
		t.Errorf("%s was handed over", got)
	}
	b.end()
	if len(b.files) > 0 {
		t.Errorf("%s was handed over", b.name())
	}
}

func TestAWatchedDirectoryMayBeALink(t *testing.T) {
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
		t.Errorf("%s was handed over", got)
	}
}

func TestWhatCouldNotBeSubmittedIsHandedOverAgain(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	away := errors.New("database away")
	b.setRefuse(away)
	b.write("a.mp4", "video", longAgo)
	if err := <-b.trouble; !errors.Is(err, away) {
		t.Fatalf("trouble is %v", err)
	}
	b.setRefuse(nil)
	if got := b.name(); got != "a.mp4" {
		t.Errorf("%s was handed over", got)
	}
	if err := <-b.trouble; err != nil {
		t.Errorf("after it was over, trouble is %v", err)
	}
}

func TestADirectoryThatIsAwayIsToldOfOnceAndItsFilesStayKnown(t *testing.T) {
	t.Parallel()
	b := watch(t, nil)
	b.write("a.mp4", "video", longAgo)
	b.next()
	moved := b.dir + "-away"
	if err := os.Rename(b.dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := <-b.trouble; !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("trouble is %v", err)
	}
	if err := os.Rename(moved, b.dir); err != nil {
		t.Fatal(err)
	}
	if err := <-b.trouble; err != nil {
		t.Fatalf("trouble is %v", err)
	}
	b.write("b.mp4", "video", longAgo)
	if got := b.name(); got != "b.mp4" {
		t.Errorf("%s was handed over again", got)
	}
}

func TestManyFilesComeInBatchesTheOldestFirst(t *testing.T) {
	t.Parallel()
	b := &box{t: t, dir: t.TempDir(), trouble: make(chan error, 1)}
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
	defer b.end()
	var all []inbox.File
	for len(all) < n {
		got := <-batches
		if len(got) > 500 {
			t.Errorf("%d files at once", len(got))
		}
		all = append(all, got...)
	}
	if !slices.IsSortedFunc(all, func(a, b inbox.File) int { return a.ModTime.Compare(b.ModTime) }) {
		t.Error("the files are not in the order of their age")
	}
}
