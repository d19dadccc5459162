package fetch

import (
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
	"syscall"
)

// takeLocal brings a local file to dst.
func takeLocal(ctx context.Context, path, dst string, o Options) (File, error) {
	src, before, err := openRegular(path)
	if err != nil {
		return File{}, err
	}
	defer src.Close()

	tmp := filepath.Join(filepath.Dir(dst), ".fetch-"+rand.Text())
	defer os.Remove(tmp) // of no effect once it has been renamed

	how, err := duplicate(src, before, path, tmp, o)
	if err != nil {
		return File{}, err
	}
	sum := sha256.New()
	if how == Copy {
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
	if err := moveInPlace(tmp, dst); err != nil {
		return File{}, err
	}
	return File{Bytes: before.Size(), SHA256: hex.EncodeToString(sum.Sum(nil)), How: how}, nil
}

var errChanged = errors.New("the file changed while it was read; is something still writing to it?")

// openRegular opens a regular file that is not empty. It asks before it opens,
// because opening alone can rewind a tape or wake whoever waits at a pipe, and
// again afterwards, because the name may mean another file by then.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = checkRegular(info)
	} else {
		err = sourceError(err)
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, sourceError(err)
	}
	if info, err = f.Stat(); err == nil {
		err = checkRegular(info)
	} else {
		err = sourceError(err)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func checkRegular(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return refused("this is a directory")
	case mode&fs.ModeNamedPipe != 0:
		return refused("this is a pipe, not a file")
	case mode&fs.ModeSocket != 0:
		return refused("this is a socket, not a file")
	case mode&fs.ModeDevice != 0:
		return refused("this is a device, not a file")
	case !mode.IsRegular():
		return refused("this is not a regular file")
	case info.Size() == 0:
		return refused("the file is empty")
	}
	return nil
}

// duplicate makes tmp the same file as src by the cheapest way that is
// allowed, and says which; Copy means that nothing is done yet.
func duplicate(src *os.File, info fs.FileInfo, path, tmp string, o Options) (string, error) {
	if clone(src, tmp) == nil {
		if err := os.Chmod(tmp, fileMode); err != nil {
			return "", destinationError(filepath.Dir(tmp), err)
		}
		return Reflink, nil
	}
	os.Remove(tmp)
	if o.Link && hardLink(info, path, tmp) {
		return Link, nil
	}
	return Copy, checkSpace(tmp, info.Size(), o.Reserve)
}

// hardLink reports whether tmp is now another name of the file that info
// describes. Whatever stands in the way, a copy does instead.
func hardLink(info fs.FileInfo, path, tmp string) bool {
	// A link to a symbolic link would be just that.
	real, err := filepath.EvalSymlinks(path)
	if err != nil || os.Link(real, tmp) != nil {
		return false
	}
	linked, err := os.Lstat(tmp)
	if err != nil || !os.SameFile(info, linked) {
		os.Remove(tmp)
		return false
	}
	return true
}

const (
	fileMode = 0o640
	// flushBytes is how much of a copy may wait to be written to disk. All of a
	// large one, synced at its end, would be minutes without a sign of life,
	// and would drive everything else out of the host's memory before.
	flushBytes = 256 << 20
)

func copyFile(ctx context.Context, src io.Reader, size int64, tmp string, sum hash.Hash, o Options) error {
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return destinationError(filepath.Dir(tmp), err)
	}
	defer out.Close()
	waiting := 0
	n, err := transfer(ctx, src, size, func(b []byte) error {
		sum.Write(b)
		_, err := out.Write(b)
		if waiting += len(b); err == nil && waiting >= flushBytes {
			waiting = 0
			err = out.Sync()
		}
		if err != nil {
			return destinationError(filepath.Dir(tmp), err)
		}
		return nil
	}, o)
	if err != nil {
		return err
	}
	if n != size {
		return errChanged
	}
	if err := out.Sync(); err != nil {
		return destinationError(filepath.Dir(tmp), err)
	}
	if err := out.Close(); err != nil {
		return destinationError(filepath.Dir(tmp), err)
	}
	return nil
}

// hashFile hashes what is at the destination, not the source, so that the sum
// is certainly of the bytes that the next stages will read.
func hashFile(ctx context.Context, tmp string, size int64, sum hash.Hash, o Options) error {
	f, err := os.Open(tmp)
	if err != nil {
		return destinationError(filepath.Dir(tmp), err)
	}
	defer f.Close()
	n, err := transfer(ctx, f, size, func(b []byte) error {
		sum.Write(b)
		return nil
	}, o)
	if err == nil && n != size {
		err = errChanged
	}
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return destinationError(filepath.Dir(tmp), err)
	}
	return nil
}

// transfer hands what r holds to put, piece by piece, until r ends or has
// given more than size. The bound matters for a file that somebody appends to
// faster than it is read.
func transfer(ctx context.Context, r io.Reader, size int64, put func([]byte) error, o Options) (int64, error) {
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
			if err := put(buf[:k]); err != nil {
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

// moveInPlace gives a complete and synced file its final name, durably.
func moveInPlace(tmp, dst string) error {
	if err := os.Rename(tmp, dst); err != nil {
		return destinationError(filepath.Dir(dst), err)
	}
	return syncDir(filepath.Dir(dst))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return destinationError(dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return destinationError(dir, err)
	}
	return nil
}
