package upload_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestPatch_ResumesAfterAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	s := serve(t, upload.Options{Dir: dir})
	t.Cleanup(func() { s.uploads.Close() }) // before the unmount
	want := randomBytes(2 << 20)
	url := s.create(int64(len(want)), "Upload-Metadata", metadata("sha256", sha256Hex(want)))
	filler := filepath.Join(dir, "filler") // of another program
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := s.send("PATCH", url, bytes.NewReader(want), "Content-Type", chunkType, "Upload-Offset", "0")
	if err == nil && (a.status != http.StatusInsufficientStorage || a.header.Get("Retry-After") == "") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the upload is resumed", func() bool {
		at := s.mustSend(http.StatusOK, "HEAD", url, nil).offset()
		if at == 0 || at == int64(len(want)) {
			t.Fatalf("%d bytes exist", at)
		}
		a, err := s.send("PATCH", url, bytes.NewReader(want[at:]), "Content-Type", chunkType, "Upload-Offset", itoa(at))
		return err == nil && a.status == http.StatusNoContent
	})
	s.checkFile(s.submissions.only(t), want)
}
