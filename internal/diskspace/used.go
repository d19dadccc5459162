//go:build unix

package diskspace

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// FileID identifies a file that has several hard links.
type FileID struct{ device, inode uint64 }

// Links returns how many hard links a file has, and its identity.
func Links(info fs.FileInfo) (links uint64, id FileID) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1, id
	}
	return uint64(st.Nlink), FileID{uint64(st.Dev), st.Ino}
}

// Walk calls each for the regular files below a directory, or for the file of that name. It follows no symbolic link.
// That a file or directory disappears meanwhile is no error.
func Walk(ctx context.Context, dir string, each func(fs.FileInfo)) error {
	return filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				each(info)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// Used returns the size of the files below a directory. One with several hard links counts once.
func Used(ctx context.Context, dir string) (bytes int64, err error) {
	counted := make(map[FileID]bool)
	err = Walk(ctx, dir, func(info fs.FileInfo) {
		if links, id := Links(info); links > 1 {
			if counted[id] {
				return
			}
			counted[id] = true
		}
		bytes += info.Size()
	})
	return bytes, err
}
