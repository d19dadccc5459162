package storage_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

func TestGetArtifact_LinksSimilarFilesAndVerifiesThem(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), smallParts)
	dir := someFiles.write(t)
	for _, name := range []string{"first", "second"} {
		if _, err := b.PutArtifact(t.Context(), name, dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	first := newDir(t)
	if _, err := b.GetArtifact(t.Context(), "first", first, nil, nil); err != nil {
		t.Fatal(err)
	}
	// A damaged file is downloaded, and the damaged one is not changed.
	damaged := filepath.Join(first, "video", "seg-1.m4s")
	if err := os.WriteFile(damaged, make([]byte, 70_000), 0o644); err != nil {
		t.Fatal(err)
	}
	similar := storage.LocalArtifact{ArtifactRef: storage.ArtifactRef{Bucket: b, Name: "first"}, Dir: first}
	missing := storage.LocalArtifact{ArtifactRef: storage.ArtifactRef{Bucket: b, Name: "missing"}, Dir: first}
	second := newDir(t)
	proxy.Reset()
	if _, err := b.GetArtifact(t.Context(), "second", second, nil, nil, similar, missing); err != nil {
		t.Fatal(err)
	}
	if _, received := proxy.Bytes(); received < 70_000 || received > 80_000 {
		t.Errorf("%d bytes were received for one damaged file of 70000", received)
	}
	if diff := cmp.Diff(hashes(t, dir), hashes(t, second)); diff != "" {
		t.Error(diff)
	}
	if text, err := os.ReadFile(damaged); err != nil || string(text) != string(make([]byte, 70_000)) {
		t.Errorf("the damaged file was changed, %v", err)
	}
	large := "source movie #1 ü%.mp4"
	x, err1 := os.Stat(filepath.Join(first, large))
	y, err2 := os.Stat(filepath.Join(second, large))
	if err1 != nil || err2 != nil || !os.SameFile(x, y) {
		t.Errorf("the files are not linked: %v, %v", err1, err2)
	}
}
