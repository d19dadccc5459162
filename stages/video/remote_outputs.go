package video

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// expected returns the delivery of a claim. It refuses names that are not delivered.
func (f *RemoteFiles) expected(ctx context.Context, c engine.Claim, name string) (delivery, error) {
	d, err := f.delivery(ctx, c)
	if err == nil && d.maxBytes(name) == 0 {
		err = refused("stage %s delivers no file with the name %.100q", store.Video().Stages()[c.Stage], name)
	}
	return d, err
}

// receiving returns the directory in which a claim's files arrive. Its name follows from the
// token, so that every coordinator on these directories finds it.
func (f *RemoteFiles) receiving(c engine.Claim, stage string) (*workdir, error) {
	taskDir, err := f.taskDir(c.Task)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(c.Token.String()))
	random := strings.ToLower(base32.StdEncoding.EncodeToString(digest[:]))[:10]
	w := &workdir{parent: taskDir, mode: privateMode, dirName: dirName{
		stage: stage, number: min(max(c.Attempt, 1), 9999), random: random, unfinished: true,
	}}
	w.path = filepath.Join(taskDir, w.String())
	return w, nil
}

// OutputSize returns how much of a file has arrived.
func (f *RemoteFiles) OutputSize(ctx context.Context, c engine.Claim, name string) (int64, error) {
	d, err := f.expected(ctx, c, name)
	if err != nil {
		return 0, err
	}
	w, err := f.receiving(c, d.name)
	if err != nil {
		return 0, err
	}
	folder, err := os.Lstat(filepath.Join(w.path, filepath.FromSlash(path.Dir(name))))
	if err == nil && !folder.IsDir() {
		return 0, refused("%q is not a directory", path.Dir(name))
	}
	info, err := os.Lstat(filepath.Join(w.path, filepath.FromSlash(name)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, refused("%q is not a file", name)
	}
	return info.Size(), nil
}

// WriteOutput appends to a file of the claim.
func (f *RemoteFiles) WriteOutput(
	ctx context.Context, c engine.Claim, name string, at, total int64, sum string, from io.Reader,
) error {
	d, err := f.expected(ctx, c, name)
	if err != nil {
		return err
	}
	w, err := f.receiving(c, d.name)
	if err != nil {
		return err
	}
	out, err := f.output(w, c)
	if err != nil {
		return err
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	switch {
	case out.accepting:
		return errComplete
	case total > d.maxBytes(name):
		return refused("%s may have %d bytes, not %d", name, d.maxBytes(name), total)
	case out.bytes-at+total > d.maxTotal():
		return refused("the files of a claim of this stage may have %d bytes in all", d.maxTotal())
	}
	if err := diskspace.Check(w.parent, total-at, f.config.reserve()); err != nil {
		return err
	}
	lock, err := lockReceiving(ctx, w.path)
	if err != nil {
		return err
	}
	defer flock.Unlock(lock)
	if accepted, err := acceptedBefore(w.path); accepted != nil || err != nil {
		return errors.Join(err, errComplete)
	}
	return f.append(w, out, name, at, total, sum, from)
}

// outputAge is how long the counters of a claim are kept after their last use.
const outputAge = 24 * time.Hour

// lockReceiving locks the directory in which a claim's files arrive, so that no other coordinator
// writes to what is being checked. It refuses a claim whose files were accepted.
func lockReceiving(ctx context.Context, dir string) (*os.File, error) {
	lock, err := lockDir(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errComplete
	}
	if err != nil {
		return nil, err
	}
	held, err := lock.Stat()
	if err == nil {
		var found fs.FileInfo
		if found, err = os.Lstat(dir); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(held, found) {
			err = errComplete // it was renamed while this waited
		}
	}
	if err != nil {
		flock.Unlock(lock)
		return nil, err
	}
	return lock, nil
}

var errComplete error = &remote.RefusedError{Reason: "the files of this claim are complete and are being checked"}

// output returns the counters of a claim, which it makes from the files that are there.
func (f *RemoteFiles) output(w *workdir, c engine.Claim) (*remoteOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if out := f.outputs[c.Token]; out != nil {
		out.used = time.Now()
		return out, nil
	}
	if err := os.Mkdir(w.path, w.mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create working directory: %w", err)
	}
	_, bytes, err := measureTree(w.path, func() {})
	if err != nil {
		return nil, err
	}
	for token, other := range f.outputs {
		if time.Since(other.used) > outputAge {
			delete(f.outputs, token) // the claim has ended, or it is counted again
		}
	}
	out := &remoteOutput{bytes: bytes, used: time.Now()}
	f.outputs[c.Token] = out
	return out, nil
}

// append writes a piece of a file. The file is complete only if its SHA-256 is right.
func (f *RemoteFiles) append(w *workdir, out *remoteOutput, name string, at, total int64, sum string, from io.Reader) error {
	root, err := os.OpenRoot(w.path)
	if err != nil {
		return fmt.Errorf("open working directory: %w", err)
	}
	defer root.Close()
	// A piece changes the time of its file only, and a Cleaner looks at that of the directory.
	if info, err := root.Stat("."); err == nil && time.Since(info.ModTime()) >= touchEvery {
		_ = touch(w.path) // the write below finds errors of the disk
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.Mkdir(dir, w.mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create directory: %w", err)
		}
	}
	file, err := root.OpenFile(filepath.FromSlash(name), os.O_RDWR|os.O_CREATE|os.O_APPEND, servedFileMode)
	if err != nil {
		return fmt.Errorf("open output: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() != at {
		return fmt.Errorf("another request writes %q", name)
	}
	n, err := io.Copy(file, from)
	out.bytes += n
	if err == nil && at+n == total && sum != "" {
		if err = checkSum(file, sum); err != nil {
			out.bytes -= total
			err = errors.Join(err, root.Remove(filepath.FromSlash(name)))
		}
	}
	return errors.Join(err, file.Close())
}

func checkSum(file *os.File, sum string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); !strings.EqualFold(got, sum) {
		return refused("%s arrived with the SHA-256 %s instead of %s; send it again", filepath.Base(file.Name()), got, sum)
	}
	return nil
}
