package video

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/fetch"
)

// The modes of what is served, for a web server to read, and of the other
// directories.
const (
	privateMode    = 0o750
	servedMode     = 0o755
	servedFileMode = 0o644
)

// makeSourceReadable lets ffmpeg's account read a source, where this process is root and
// ffmpeg is not. Nobody else gets there: the task's directory is closed to others.
// A file that is linked keeps the mode that its owner gave it, and where that is
// closed to others, its directory stays closed, too.
func makeSourceReadable(file, how string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	linked := how == fetch.Link
	if linked {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("look at source: %w", err)
		}
		if info.Mode()&0o004 == 0 {
			return nil
		}
	}
	if err := setMode(filepath.Dir(file), privateMode|0o001); err != nil || linked {
		return err
	}
	return setMode(file, servedFileMode)
}

// makeTreeReadable gives all that is in dir, and dir, the modes of what is served. The
// umask has taken from what this process and ffmpeg made, and under an empty
// one ffmpeg's files are everybody's to write to.
func makeTreeReadable(dir string, step func()) error {
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
