package storage_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

func TestAdoptArtifact_IsOfTheFilesThatAnotherProgramHasCopied(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	b := open(t, "s3://"+bucketName+"/data", s.Env(), smallParts)
	dir := someFiles.write(t)
	s.Upload(t, dir, bucketName, "data/1/adopted")
	if err := s.Client(t).RemoveObject(t.Context(), bucketName, "data/1/adopted/video/init.mp4", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.AdoptArtifact(t.Context(), "1/adopted", dir); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := b.ReadManifest(t.Context(), "1/adopted"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the artifact exists: %v", err)
	}
	s.Upload(t, dir, bucketName, "data/1/adopted")
	for range 2 {
		if err := b.AdoptArtifact(t.Context(), "1/adopted", dir); err != nil {
			t.Fatal(err)
		}
	}
	adopted, err := b.ReadManifest(t.Context(), "1/adopted")
	if err != nil {
		t.Fatal(err)
	}
	put, err := b.PutArtifact(t.Context(), "1/put", dir, nil)
	if diff := cmp.Diff(put.Files, adopted.Files); diff != "" || err != nil {
		t.Errorf("other files than PutArtifact lists: %s, %v", diff, err)
	}
	if _, err := b.GetArtifact(t.Context(), "1/adopted", newDir(t), nil, nil); err != nil {
		t.Error(err)
	}
}
