package storage_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

const mib = 1 << 20

// bucketName is the bucket of the tests.
const bucketName = "videos"

// environment returns a variable of the environment.
type environment = func(string) string

// with overrides a variable.
func with(env environment, name, value string) environment {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return env(asked)
	}
}

// startServer starts a server with a bucket.
func startServer(t testing.TB, options s3test.Options) *s3test.Server {
	t.Helper()
	s := s3test.Start(t, options)
	s.MakeBucket(t, bucketName)
	return s
}

// open returns a bucket.
func open(t testing.TB, address string, env environment, options storage.Options) *storage.Bucket {
	t.Helper()
	a, err := storage.ParseAddress(address, env)
	if err != nil {
		t.Fatal(err)
	}
	b, err := storage.Open(a, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// tree is the files of a directory: their sizes by name.
type tree map[string]int64

// someFiles has small files, an empty one, and one of two parts.
var someFiles = tree{
	"master.m3u8": 200, "manifest.mpd": 300, "video/init.mp4": 900, "video/seg-1.m4s": 70_000, "video/empty.m4s": 0,
	"source movie #1 ü%.mp4": 6 * mib,
}

// write writes the files with content that depends on their names only.
func (files tree) write(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, size := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		seed := sha256.Sum256([]byte(name))
		content := make([]byte, size)
		_, _ = rand.NewChaCha8(seed).Read(content) // it never fails
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// hashes returns the hashes of all files of a directory, by name.
func hashes(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		name, err := filepath.Rel(dir, path)
		found[filepath.ToSlash(name)] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// newDir returns the path of a directory that does not exist.
func newDir(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "artifact")
}

// exists reports whether a file or directory exists.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
