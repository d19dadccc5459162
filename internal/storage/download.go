package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

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
	defer func() { file.Close() }()
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
		// A new file, because this one may have another link.
		if err := errors.Join(file.Close(), g.root.Remove(local)); err != nil {
			return err
		}
		if file, err = g.root.OpenFile(local, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
			return err
		}
		if err := g.download(ctx, f, file, sum, 0); err != nil {
			return err
		}
	}
	if !matches(sum, f) {
		err := fmt.Errorf("%w: %s has another SHA-256 than the manifest says", ErrCorrupt, f.Name)
		return errors.Join(err, g.root.Remove(local))
	}
	return errors.Join(file.Sync(), file.Close())
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
	body, err := g.b.openRange(ctx, g.b.key(g.name, f.Name), from, f.Size, f.Size)
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

// openRange reads an object of the given size from an offset to another, which is not read.
func (b *Bucket) openRange(ctx context.Context, key string, from, to, size int64) (io.ReadCloser, error) {
	var options minio.GetObjectOptions
	if err := options.SetRange(from, to-1); err != nil {
		return nil, err
	}
	body, info, _, err := b.core.GetObject(ctx, b.address.Bucket, key, options)
	if hasCode(err, "InvalidRange") {
		return nil, fmt.Errorf("%w: it is shorter than the manifest says", ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	if want := fmt.Sprintf("bytes %d-%d/%d", from, to-1, size); info.Headers.Get("Content-Range") != want {
		body.Close()
		return nil, fmt.Errorf("%w: its range is %q, not %q", ErrCorrupt, info.Headers.Get("Content-Range"), want)
	}
	return body, nil
}
