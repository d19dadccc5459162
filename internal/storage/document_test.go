package storage_test

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

func TestWriteDocument_ReplacesOnlyTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	b := open(t, "s3://"+bucketName+"/published", s.Env(), storage.Options{})
	const name = "1/master.m3u8"
	if _, _, err := b.ReadDocument(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no document: %v", err)
	}
	if _, err := b.WriteDocument(t.Context(), name, []byte("x"), "0123456789abcdef0123456789abcdef"); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("a version of a document that does not exist: %v", err)
	}
	first, err := b.WriteDocument(t.Context(), name, []byte("one"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteDocument(t.Context(), name, []byte("two"), ""); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("a document that exists: %v", err)
	}
	if again, err := b.WriteDocument(t.Context(), name, []byte("one"), ""); err != nil || again != first {
		t.Errorf("the same content: %q, %v", again, err)
	}
	second, err := b.WriteDocument(t.Context(), name, []byte("two"), first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteDocument(t.Context(), name, []byte("three"), first); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("an old version: %v", err)
	}
	content, version, err := b.ReadDocument(t.Context(), name)
	if err != nil || string(content) != "two" || version != second {
		t.Errorf("read %q, %q, %v; want version %q", content, version, err, second)
	}
	info, err := s.Client(t).StatObject(t.Context(), bucketName, "published/"+name, minio.StatObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cache := info.Metadata.Get("Cache-Control"); cache != "public, max-age=5, must-revalidate" {
		t.Errorf("Cache-Control: %s", cache)
	}
	for range 2 {
		if err := b.DeleteDocument(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}

func TestWriteDocument_OfManyWritersOneWins(t *testing.T) {
	t.Parallel()
	b := open(t, "s3://"+bucketName, startServer(t, s3test.Options{}).Env(), storage.Options{})
	version := ""
	for round := range 10 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		var winners []string
		for writer := range 8 {
			wg.Go(func() {
				written, err := b.WriteDocument(t.Context(), "document", fmt.Appendf(nil, "%d of round %d", writer, round), version)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners = append(winners, written)
				} else if !errors.Is(err, storage.ErrConflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, current, err := b.ReadDocument(t.Context(), "document")
		if err != nil || len(winners) != 1 || winners[0] != current {
			t.Fatalf("round %d: winners %q, current %q, %v", round, winners, current, err)
		}
		version = current
	}
}
