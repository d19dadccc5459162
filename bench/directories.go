package main

import (
	"os"
	"path/filepath"
	"strings"
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
	if root := projectDir(); root != "" {
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
	if root := projectDir(); root != "" {
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

// projectDir returns the project's directory if the working directory is in it, or "".
func projectDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for modulePath(dir) != "github.com/cuelight/cuelight" {
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// modulePath returns the path of the Go module whose root is the directory, or "".
func modulePath(dir string) string {
	file, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(file)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}
