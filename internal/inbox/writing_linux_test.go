package inbox_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight/internal/inbox"
)

func TestAFileThatIsOpenForWritingIsNotHandedOverUntilItIsClosed(t *testing.T) {
	t.Parallel()
	for name, flag := range map[string]int{"writing": os.O_WRONLY | os.O_APPEND, "reading and writing": os.O_RDWR} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &box{t: t, dir: t.TempDir(), files: make(chan inbox.File, 10), trouble: make(chan error, 10)}
			b.write("a.mp4", "half", longAgo)
			f, err := os.OpenFile(filepath.Join(b.dir, "a.mp4"), flag, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b.start(nil)
			defer b.end()
			// a.mp4 is the older one: it would be handed over first.
			b.write("b.mp4", "video", longAgo.Add(1))
			if got := b.name(); got != "b.mp4" {
				t.Errorf("%s was handed over while it was open", got)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got := b.name(); got != "a.mp4" {
				t.Errorf("%s was handed over", got)
			}
		})
	}
}

func TestAFileThatAnotherProcessWritesToIsNotHandedOver(t *testing.T) {
	t.Parallel()
	b := &box{t: t, dir: t.TempDir(), files: make(chan inbox.File, 10), trouble: make(chan error, 10)}
	b.write("a.mp4", "half", longAgo)
	writer := exec.CommandContext(t.Context(), "sh", "-c", `exec >>"$0"; echo open >&2; read line`, filepath.Join(b.dir, "a.mp4"))
	release, err := writer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := writer.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	b.start(nil)
	defer b.end()
	b.write("b.mp4", "video", longAgo.Add(1))
	if got := b.name(); got != "b.mp4" {
		t.Errorf("%s was handed over while it was open", got)
	}
	release.Close()
	_ = writer.Wait() // read ends with an error, at the end of its input
	if got := b.name(); got != "a.mp4" {
		t.Errorf("%s was handed over", got)
	}
}

func TestAFileThatIsOnlyReadIsHandedOver(t *testing.T) {
	t.Parallel()
	b := &box{t: t, dir: t.TempDir(), files: make(chan inbox.File, 10), trouble: make(chan error, 10)}
	b.write("a.mp4", "video", longAgo)
	f, err := os.Open(filepath.Join(b.dir, "a.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.start(nil)
	defer b.end()
	if got := b.name(); got != "a.mp4" {
		t.Errorf("%s was handed over", got)
	}
}

// BenchmarkWriters is what one look costs more when there is a file to hand
// over, with the processes that this host happens to have.
func BenchmarkWriters(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "a.mp4")
	if err := os.WriteFile(path, []byte("video"), 0o644); err != nil {
		b.Fatal(err)
	}
	if err := os.Chtimes(path, longAgo, longAgo); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		ctx, cancel := context.WithCancel(context.Background())
		err := inbox.Run(ctx, inbox.Options{
			Dirs: []string{dir}, Every: 1, Submit: func(context.Context, []inbox.File) error { cancel(); return nil },
		})
		cancel()
		if err != nil {
			b.Fatal(err)
		}
	}
}
