package inbox_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight/internal/inbox"
)

func TestRun_WaitsUntilAFileOpenForWritingIsClosed(t *testing.T) {
	t.Parallel()
	for name, flag := range map[string]int{"writing": os.O_WRONLY | os.O_APPEND, "reading and writing": os.O_RDWR} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &testInbox{t: t, dir: t.TempDir(), files: make(chan inbox.File, 10), errors: make(chan error, 10)}
			b.write("a.mp4", "half", longAgo)
			f, err := os.OpenFile(filepath.Join(b.dir, "a.mp4"), flag, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b.start(nil)
			defer b.stopAndWait()
			// a.mp4 is older, so it would be submitted first.
			b.write("b.mp4", "video", longAgo.Add(1))
			if got := b.nextName(); got != "b.mp4" {
				t.Errorf("%s was submitted while it was open", got)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got := b.nextName(); got != "a.mp4" {
				t.Errorf("%s was submitted", got)
			}
		})
	}
}

func TestRun_WaitsForAWriterInAnotherProcess(t *testing.T) {
	t.Parallel()
	b := &testInbox{t: t, dir: t.TempDir(), files: make(chan inbox.File, 10), errors: make(chan error, 10)}
	b.write("a.mp4", "half", longAgo)
	writer := exec.CommandContext(t.Context(), "sh", "-c", `exec >>"$0"; echo open >&2; read line`,
		filepath.Join(b.dir, "a.mp4"))
	release, err := writer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := writer.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stderr.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	b.start(nil)
	defer b.stopAndWait()
	b.write("b.mp4", "video", longAgo.Add(1))
	if got := b.nextName(); got != "b.mp4" {
		t.Errorf("%s was submitted while it was open", got)
	}
	release.Close()
	_ = writer.Wait() // the shell's read fails at the end of its input
	if got := b.nextName(); got != "a.mp4" {
		t.Errorf("%s was submitted", got)
	}
}

func TestRun_SubmitsAFileOpenForReading(t *testing.T) {
	t.Parallel()
	b := &testInbox{t: t, dir: t.TempDir(), files: make(chan inbox.File, 10), errors: make(chan error, 10)}
	b.write("a.mp4", "video", longAgo)
	f, err := os.Open(filepath.Join(b.dir, "a.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.start(nil)
	defer b.stopAndWait()
	if got := b.nextName(); got != "a.mp4" {
		t.Errorf("%s was submitted", got)
	}
}

// BenchmarkOpenForWriting measures a scan that finds a file to submit. The result
// depends on the number of processes on this host.
func BenchmarkOpenForWriting(b *testing.B) {
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
			Dirs: []string{dir}, PollInterval: 1, Submit: func(context.Context, []inbox.File) error { cancel(); return nil },
		})
		cancel()
		if err != nil {
			b.Fatal(err)
		}
	}
}
