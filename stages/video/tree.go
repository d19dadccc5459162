package video

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cuelight/cuelight/internal/diskspace"
)

// treeSize is the number and total size of files below a directory.
type treeSize struct {
	files int
	bytes int64
}

// linker copies directory trees: by hard links if the file system allows, which is
// instant and takes no space, else by copying. Sharing files is safe because no
// process writes to a file after its stage has finished.
type linker struct {
	need    int64 // bytes to copy if links do not work
	reserve int64
	copying bool
	resume  bool // a call that was interrupted goes on: a file that has its whole size stays
	onFile  func(done treeSize)
	done    treeSize
}

// add copies the content of directory src into directory dst.
func (l *linker) add(ctx context.Context, src, dst string, mode fs.FileMode) error {
	entries, err := os.ReadDir(src)
	if err != nil {
		return fmt.Errorf("list directory: %w", err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		from, to := filepath.Join(src, e.Name()), filepath.Join(dst, e.Name())
		switch {
		case e.IsDir():
			if err := os.Mkdir(to, mode); err != nil && (!l.resume || !errors.Is(err, fs.ErrExist)) {
				return fmt.Errorf("create directory: %w", err)
			}
			if err := l.add(ctx, from, to, mode); err != nil {
				return err
			}
		case e.Type().IsRegular():
			if err := l.linkOrCopy(from, to); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%q is neither a file nor a directory", from)
		}
	}
	return nil
}

func (l *linker) linkOrCopy(from, to string) error {
	if l.resume && !hasSizeOf(from, to) {
		_ = os.Remove(to) // if it is there
	}
	err := error(syscall.EXDEV)
	if !l.copying {
		err = os.Link(from, to)
	}
	if cannotLink(err) {
		if !l.copying {
			if err := diskspace.Check(filepath.Dir(to), l.need-l.done.bytes, l.reserve); err != nil {
				return err
			}
			l.copying = true
		}
		err = copyFile(from, to)
	}
	if err != nil && (!l.resume || !errors.Is(err, fs.ErrExist)) {
		return err
	}
	info, err := os.Stat(to)
	if err != nil {
		return err
	}
	l.done.files++
	l.done.bytes += info.Size()
	if l.onFile != nil {
		l.onFile(l.done)
	}
	return nil
}

// hasSizeOf reports whether a copy has the size of its original.
func hasSizeOf(from, to string) bool {
	original, err1 := os.Stat(from)
	there, err2 := os.Stat(to)
	return err1 == nil && err2 == nil && there.Size() == original.Size()
}

// cannotLink reports whether the file system refused a link that a copy can replace.
func cannotLink(err error) bool {
	return isAny(err, syscall.EXDEV, syscall.EPERM, syscall.EMLINK, syscall.ENOTSUP, syscall.EOPNOTSUPP, syscall.ENOSYS)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, servedFileMode)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, in)
	if err == nil && n != info.Size() {
		err = fmt.Errorf("copy %q: %d bytes of %d", from, n, info.Size())
	}
	return errors.Join(err, out.Close())
}

// measureTree returns the number and total size of the files in a directory.
func measureTree(dir string, step func()) (files int, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		step()
		info, err := e.Info()
		if err != nil {
			return err
		}
		files++
		bytes += info.Size()
		return nil
	})
	return files, bytes, err
}

// syncTree syncs a directory and its content to disk. Files that an earlier stage has
// synced cost almost nothing.
func syncTree(ctx context.Context, dir string, step func()) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		step()
		return syncFile(path)
	})
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
