package main

import (
	"os"
	"path/filepath"
	"strings"
)

// defaultDir is where the database is made: a place for large temporary files,
// on a disk, which another user, the server's, can enter.
func defaultDir() string {
	const dir = "/var/tmp"
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return dir
	}
	return os.TempDir()
}

// defaultOut is the folder for results in the module that this program is of, if
// it was started somewhere in the project.
func defaultOut() string {
	if root := projectDir(); root != "" {
		return filepath.Join(root, "bench", "results")
	}
	return ""
}

// projectDir is the project that this program was started somewhere in, or "".
func projectDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if module(dir) == "github.com/cuelight/cuelight" {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// defaultMedia is the folder with clips that CUELIGHT_TEST_MEDIA names, or one
// beside the checkout on machines that have it.
func defaultMedia() string {
	if dir := os.Getenv("CUELIGHT_TEST_MEDIA"); dir != "" {
		return dir
	}
	if root := projectDir(); root != "" {
		dir := filepath.Join(root, "..", "shared", "media")
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return ""
}

// module is the name of the Go module that has its root in the directory.
func module(dir string) string {
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
