package main

import (
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// defaultDataDir returns a directory for large temporary files that is on a disk and that the
// server's user can enter.
func defaultDataDir() string {
	const dir = "/var/tmp"
	if isDir(dir) {
		return dir
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return dir
	}
	return os.TempDir()
}

// defaultResultsDir returns bench/results of the project, or "" outside of it.
func defaultResultsDir() string {
	if root := proofkit.ProjectDir(); root != "" {
		return filepath.Join(root, "bench", "results")
	}
	return ""
}

// defaultMediaDir returns the directory with clips that CUELIGHT_TEST_MEDIA names, or
// ../shared/media of the project if that exists.
func defaultMediaDir() string {
	if dir := os.Getenv("CUELIGHT_TEST_MEDIA"); dir != "" {
		return dir
	}
	if root := proofkit.ProjectDir(); root != "" {
		if dir := filepath.Join(root, "..", "shared", "media"); isDir(dir) {
			return dir
		}
	}
	return ""
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
