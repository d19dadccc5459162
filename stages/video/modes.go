package video

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The modes of what is served, for a web server to read, and of the other
// directories.
const (
	privateMode    = 0o750
	servedMode     = 0o755
	servedFileMode = 0o644
)

// serveTree gives all that is in dir, and dir, the modes of what is served. The
// umask has taken from what this process and ffmpeg made, and under an empty
// one ffmpeg's files are everybody's to write to.
func serveTree(dir string, step func()) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		step()
		if e.IsDir() {
			return setMode(path, servedMode)
		}
		return setMode(path, servedFileMode)
	})
}

// setMode leaves alone what has the mode already: another account's file, where
// hosts share a disk, cannot be changed.
func setMode(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at what is served: %w", err)
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	special := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if err := os.Chmod(path, special|mode); err != nil {
		return fmt.Errorf("make readable for all: %w", err)
	}
	return nil
}
