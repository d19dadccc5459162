package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/flock"
)

// unfinished ends the names of directories of downloads.
const unfinished = ".tmp"

// GetArtifact downloads an artifact into the new directory dir, or only some of it: files by
// their names, and directories in it with all of their files. It fills dir.tmp, continues
// what it finds there, verifies sizes and hashes, syncs all to disk and renames the directory.
// A lock on dir.tmp keeps two calls apart, also in two processes.
//
// It returns fs.ErrExist if dir exists, fs.ErrNotExist if the artifact or a part of it does
// not exist, and ErrCorrupt if a file is not as the manifest says. A caller that does not
// repeat a failed call removes dir.tmp.
func (b *Bucket) GetArtifact(ctx context.Context, name, dir string, only []string, progress Progress) (Manifest, error) {
	m, err := b.getArtifact(ctx, name, dir, only, progress)
	if errors.Is(err, ErrCorrupt) {
		// The artifact may have been deleted meanwhile.
		if _, missing := b.readManifest(ctx, name); isMissing(missing) {
			err = missing
		}
	}
	return m, b.wrap(ctx, err, "get artifact", name)
}

// isMissing reports whether the object, and not its bucket, does not exist.
func isMissing(err error) bool {
	return hasCode(err, minio.NoSuchKey)
}

func (b *Bucket) getArtifact(ctx context.Context, name, dir string, only []string, progress Progress) (m Manifest, err error) {
	if err := checkName(name); err != nil {
		return m, err
	}
	if m, err = b.readManifest(ctx, name); err != nil {
		return m, err
	}
	if m.Files, err = selectFiles(m.Files, only); err != nil {
		return m, err
	}
	g, err := newGet(ctx, b, name, dir)
	if err != nil {
		return m, err
	}
	defer g.close()
	g.counter = counter{report: progress, total: m.Bytes()}
	if err := g.files(ctx, m.Files); err != nil {
		return m, err
	}
	return m, g.finish(dir)
}

// selectFiles returns the files that have one of the names or are below it.
func selectFiles(files []File, only []string) ([]File, error) {
	if len(only) == 0 {
		return files, nil
	}
	var selected []File
	isFound := make(map[string]bool)
	for _, f := range files {
		for _, name := range only {
			if f.Name == name || strings.HasPrefix(f.Name, name+"/") {
				isFound[name] = true
				selected = append(selected, f)
				break
			}
		}
	}
	for _, name := range only {
		if !isFound[name] {
			return nil, fmt.Errorf("the artifact has no %s: %w", name, fs.ErrNotExist)
		}
	}
	return selected, nil
}

// get is one call of GetArtifact.
type get struct {
	b       *Bucket
	name    string
	path    string // of the unfinished directory
	lock    *os.File
	root    *os.Root // of path: no name leads out of it
	counter counter
}

func newGet(ctx context.Context, b *Bucket, name, dir string) (*get, error) {
	g := &get{b: b, name: name, path: dir + unfinished}
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, fmt.Errorf("%s: %w", dir, fs.ErrExist))
		}
		if err := os.MkdirAll(g.path, 0o755); err != nil {
			return nil, err
		}
		var err error
		if g.lock, err = os.Open(g.path); err != nil {
			return nil, err
		}
		if err := flock.Lock(ctx, g.lock, flock.Exclusive); err != nil {
			g.lock.Close()
			return nil, err
		}
		// The holder of the lock before this one may have renamed or removed the directory.
		locked, err1 := g.lock.Stat()
		now, err2 := os.Lstat(g.path)
		if err1 == nil && err2 == nil && os.SameFile(locked, now) {
			break
		}
		flock.Unlock(g.lock)
	}
	var err error
	if g.root, err = os.OpenRoot(g.path); err != nil {
		flock.Unlock(g.lock)
	}
	return g, err
}

func (g *get) close() {
	g.root.Close()
	flock.Unlock(g.lock)
}

func (g *get) files(ctx context.Context, files []File) error {
	if err := g.removeOthers(files); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(g.b.options.Connections)
	for _, f := range files {
		group.Go(func() error {
			if err := groupCtx.Err(); err != nil {
				return err
			}
			return g.file(groupCtx, f)
		})
	}
	return group.Wait()
}

// removeOthers removes files of an earlier call that asked for other ones.
func (g *get) removeOthers(files []File) error {
	present, err := listFiles(g.path)
	for _, p := range present {
		if !slices.ContainsFunc(files, func(f File) bool { return f.Name == p.Name }) {
			err = errors.Join(err, g.root.Remove(filepath.FromSlash(p.Name)))
		}
	}
	return err
}

// file downloads the rest of a file and verifies it. If bytes of an earlier call are wrong, as
// after a crash of the host, it starts again.
func (g *get) file(ctx context.Context, f File) error {
	local := filepath.FromSlash(f.Name)
	if dir := path.Dir(f.Name); dir != "." {
		if err := g.root.MkdirAll(filepath.FromSlash(dir), 0o755); err != nil {
			return err
		}
	}
	file, err := g.root.OpenFile(local, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	had, err := io.Copy(sum, file)
	if err != nil {
		return err
	}
	g.counter.add(had)
	if err := g.download(ctx, f, file, sum, had); err != nil {
		return err
	}
	if had > 0 && !matches(sum, f) {
		g.counter.add(-max(had, f.Size))
		sum = sha256.New()
		if err := errors.Join(file.Truncate(0), rewind(file)); err != nil {
			return err
		}
		if err := g.download(ctx, f, file, sum, 0); err != nil {
			return err
		}
	}
	if !matches(sum, f) {
		return errors.Join(fmt.Errorf("%w: %s has another SHA-256 than the manifest says", ErrCorrupt, f.Name), g.root.Remove(local))
	}
	return errors.Join(file.Sync(), file.Close())
}

func rewind(file *os.File) error {
	_, err := file.Seek(0, io.SeekStart)
	return err
}

func matches(sum hash.Hash, f File) bool { return hex.EncodeToString(sum.Sum(nil)) == f.SHA256 }

// download appends the bytes of an object to a file that has the first ones. It continues
// where a connection was cut, as long as that makes progress.
func (g *get) download(ctx context.Context, f File, file io.Writer, sum hash.Hash, from int64) error {
	for failed := 0; from < f.Size; {
		n, err := g.copyRange(ctx, f, io.MultiWriter(file, sum), from)
		if from += n; err == nil {
			continue
		}
		e, isService := errors.AsType[*ServiceError](g.b.explain(ctx, err))
		if failed++; n > 0 {
			failed = 1
		}
		if ctx.Err() != nil || !isService || e.Kind != Cut && e.Kind != Slow || failed >= g.b.options.Tries {
			return err
		}
		if err := ctxsleep.For(ctx, time.Duration(failed)*100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// copyRange copies an object from an offset on, and returns how many bytes were written.
func (g *get) copyRange(ctx context.Context, f File, to io.Writer, from int64) (int64, error) {
	body, err := g.b.openRange(ctx, g.b.key(g.name, f.Name), from, f.Size)
	if isMissing(err) {
		return 0, fmt.Errorf("%w: %s is missing", ErrCorrupt, f.Name)
	}
	if err != nil {
		return 0, err
	}
	defer body.Close()
	n, err := io.Copy(countWriter{to, &g.counter}, body)
	if err == nil && n < f.Size-from {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// countWriter reports what was written.
type countWriter struct {
	io.Writer
	counter *counter
}

func (w countWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.counter.add(int64(n))
	return n, err
}

// openRange reads an object of the given size from an offset on.
func (b *Bucket) openRange(ctx context.Context, key string, from, size int64) (io.ReadCloser, error) {
	var options minio.GetObjectOptions
	if err := options.SetRange(from, size-1); err != nil {
		return nil, err
	}
	body, info, _, err := b.core.GetObject(ctx, b.address.Bucket, key, options)
	if hasCode(err, "InvalidRange") {
		return nil, fmt.Errorf("%w: it is shorter than the manifest says", ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	if want := fmt.Sprintf("bytes %d-%d/%d", from, size-1, size); info.Headers.Get("Content-Range") != want {
		body.Close()
		return nil, fmt.Errorf("%w: its range is %q, not %q", ErrCorrupt, info.Headers.Get("Content-Range"), want)
	}
	return body, nil
}

// finish syncs the directories and gives the artifact its name.
func (g *get) finish(dir string) error {
	err := filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
	if err != nil {
		return err
	}
	if err := os.Rename(g.path, dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
