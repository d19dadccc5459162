package video

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/fetch"
)

// A web server must be able to read served files. Other directories are private.
const (
	privateMode    = 0o750
	servedMode     = 0o755
	servedFileMode = 0o644
)

// makeSourceReadable lets ffmpeg's user read a source if this process is root and
// ffmpeg is not. The task's directory stays closed to others. A linked file keeps its
// owner's mode; if that excludes others, its directory stays closed, too.
func makeSourceReadable(file, how string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	linked := how == fetch.Link
	if linked {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("read mode of source: %w", err)
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

// makeTreeReadable sets the modes of served files for dir and its content: the umask
// may have removed permissions, or have left ffmpeg's files writable for all.
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

// setMode changes a mode unless it is already right: if hosts share a disk, the files of
// another account cannot be changed.
func setMode(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("read mode: %w", err)
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	special := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if err := os.Chmod(path, special|mode); err != nil {
		return fmt.Errorf("make readable for all accounts: %w", err)
	}
	return nil
}
