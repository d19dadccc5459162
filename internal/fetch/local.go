package fetch

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

const (
	fileMode = 0o640
	// syncBytes is how much of a copy can wait to be written to disk. One sync at the
	// end of a large copy would take minutes without progress, and the unwritten pages
	// would fill the host's memory.
	syncBytes = 256 << 20
)

var errChanged = errors.New("the file changed while it was read; is something still writing to it?")

// copyLocal copies, clones or links the local file path to dst.
func copyLocal(ctx context.Context, path, dst string, o Options) (File, error) {
	src, before, err := openRegular(path)
	if err != nil {
		return File{}, err
	}
	defer src.Close()

	tmp := temporaryPath(dst)
	defer os.Remove(tmp) // does nothing after the rename

	method, err := cloneOrLink(src, before, path, tmp, o)
	if err != nil {
		return File{}, err
	}
	sum := sha256.New()
	if method == Copy {
		err = copyFile(ctx, src, before.Size(), tmp, sum, o)
	} else {
		err = hashFile(ctx, tmp, before.Size(), sum, o)
	}
	if err != nil {
		return File{}, err
	}
	after, err := src.Stat()
	if err != nil {
		return File{}, sourceError(err)
	}
	if after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return File{}, errChanged
	}
	if err := renameAndSync(tmp, dst); err != nil {
		return File{}, err
	}
	return File{Bytes: before.Size(), SHA256: hex.EncodeToString(sum.Sum(nil)), Method: method}, nil
}

// openRegular opens a regular file that is not empty. It checks before it opens, because
// opening alone can rewind a tape or wake a process that waits at a pipe. It checks again
// afterwards, because the path may name another file by then.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err := checkRegular(info, err); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, sourceError(err)
	}
	info, err = f.Stat()
	if err := checkRegular(info, err); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// checkRegular takes the results of a stat call.
func checkRegular(info fs.FileInfo, err error) error {
	if err != nil {
		return sourceError(err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return permanent("this is a directory")
	case mode&fs.ModeNamedPipe != 0:
		return permanent("this is a pipe, not a file")
	case mode&fs.ModeSocket != 0:
		return permanent("this is a socket, not a file")
	case mode&fs.ModeDevice != 0:
		return permanent("this is a device, not a file")
	case !mode.IsRegular():
		return permanent("this is not a regular file")
	case info.Size() == 0:
		return permanent("the file is empty")
	}
	return nil
}

// cloneOrLink makes tmp a reflink or an allowed hard link, and returns the method. If it
// returns Copy, the caller must copy the file.
func cloneOrLink(src *os.File, info fs.FileInfo, path, tmp string, o Options) (string, error) {
	if clone(src, tmp) == nil {
		return Reflink, destinationError(filepath.Dir(tmp), os.Chmod(tmp, fileMode))
	}
	os.Remove(tmp)
	if o.Link && hardLink(info, path, tmp) {
		return Link, nil
	}
	return Copy, checkSpace(tmp, info.Size(), o.Reserve)
}

// hardLink reports whether it made tmp a hard link to the file that info describes.
func hardLink(info fs.FileInfo, path, tmp string) bool {
	// A hard link to a symbolic link is a symbolic link.
	target, err := filepath.EvalSymlinks(path)
	if err != nil || os.Link(target, tmp) != nil {
		return false
	}
	linked, err := os.Lstat(tmp)
	if err != nil || !os.SameFile(info, linked) {
		os.Remove(tmp)
		return false
	}
	return true
}

func copyFile(ctx context.Context, src io.Reader, size int64, tmp string, sum hash.Hash, o Options) error {
	dir := filepath.Dir(tmp)
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return destinationError(dir, err)
	}
	defer out.Close()
	unsynced := 0
	at := int64(0)
	n, err := readAll(ctx, src, size, func(b []byte) error {
		sum.Write(b)
		err := writeSparse(out, b, at)
		at += int64(len(b))
		if unsynced += len(b); err == nil && unsynced >= syncBytes {
			unsynced = 0
			err = out.Sync()
		}
		return destinationError(dir, err)
	}, o)
	if err == nil && n != size {
		err = errChanged
	}
	if err != nil {
		return err
	}
	return destinationError(dir, errors.Join(out.Truncate(size), out.Sync(), out.Close()))
}

// writeSparse writes to a new file, but leaves out blocks of zeros: they stay holes, as in a sparse source. The last
// ones need Truncate.
func writeSparse(f *os.File, b []byte, at int64) error {
	var zeros [64 << 10]byte
	for block := range slices.Chunk(b, len(zeros)) {
		if !bytes.Equal(block, zeros[:len(block)]) {
			if _, err := f.WriteAt(block, at); err != nil {
				return err
			}
		}
		at += int64(len(block))
	}
	return nil
}

// hashFile hashes and syncs the destination. It does not hash the source, so the sum is
// certainly of the bytes that the next stages read.
func hashFile(ctx context.Context, tmp string, size int64, sum hash.Hash, o Options) error {
	f, err := os.Open(tmp)
	if err != nil {
		return destinationError(filepath.Dir(tmp), err)
	}
	defer f.Close()
	n, err := readAll(ctx, f, size, func(b []byte) error {
		sum.Write(b)
		return nil
	}, o)
	if err == nil && n != size {
		err = errChanged
	}
	if err != nil {
		return err
	}
	return destinationError(filepath.Dir(tmp), f.Sync())
}

// readAll passes the content of r to handle in pieces. It stops when r ends or returned
// more than size bytes: another program may append to the file faster than this one
// reads it.
func readAll(ctx context.Context, r io.Reader, size int64, handle func([]byte) error, o Options) (int64, error) {
	buf := make([]byte, 1<<20)
	var n int64
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		k, err := r.Read(buf)
		if k > 0 {
			n += int64(k)
			if n > size {
				return n, nil
			}
			if err := handle(buf[:k]); err != nil {
				return n, err
			}
			o.Progress(n, size)
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, sourceError(err)
		}
	}
}

// temporaryPath returns a new path in the directory of dst.
func temporaryPath(dst string) string { return filepath.Join(filepath.Dir(dst), ".fetch-"+rand.Text()) }

// renameAndSync renames a complete and synced file, durably.
func renameAndSync(tmp, dst string) error {
	dir := filepath.Dir(dst)
	if err := os.Rename(tmp, dst); err != nil {
		return destinationError(dir, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return destinationError(dir, err)
	}
	defer d.Close()
	return destinationError(dir, d.Sync())
}
