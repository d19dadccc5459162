package storage

import (
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/contenttype"
)

// immutable is the Cache-Control of files of artifacts, which never change.
const immutable = "public, max-age=31536000, immutable"

// ArtifactRef names an artifact.
type ArtifactRef struct {
	Bucket *Bucket
	Name   string
}

// PutArtifact uploads all files of a directory and then makes the artifact exist. The
// directory must not change meanwhile, and has regular files only. Empty directories are not
// stored.
//
// A file that an artifact in similar has, too, is copied by the service instead, if both are in one
// service and the credentials of b allow it. These artifacts need not exist.
//
// After an error, a repeated call continues with what the service has. If the artifact exists
// with the same files, PutArtifact returns nil; with others, fs.ErrExist.
func (b *Bucket) PutArtifact(
	ctx context.Context, name, dir string, progress Progress, similar ...ArtifactRef,
) (Manifest, error) {
	m := Manifest{}
	err := checkName(name)
	if err == nil {
		m.Files, err = ListFiles(dir)
	}
	if err == nil {
		err = b.putArtifact(ctx, &put{b: b, name: name, dir: dir}, &m, progress, similar)
	}
	return m, b.wrap(ctx, err, "put artifact", name)
}

// PutFile stores a file as an artifact, in which it is the only one and has the name as. Otherwise
// it does what PutArtifact does. If the size or the time of the file changes meanwhile, the error is
// ErrChanged.
func (b *Bucket) PutFile(ctx context.Context, name, file, as string, progress Progress) (Manifest, error) {
	m := Manifest{}
	info, err := os.Stat(file)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file: %w", file, fs.ErrInvalid)
	default:
		m.Files = []File{{Name: as, Size: info.Size()}}
		err = errors.Join(checkName(name), checkName(as))
	}
	if err == nil {
		err = b.putArtifact(ctx, &put{b: b, name: name, file: file, before: info}, &m, progress, nil)
	}
	return m, b.wrap(ctx, err, "put artifact", name)
}

// putArtifact stores the files of a manifest, and sets their hashes.
func (b *Bucket) putArtifact(ctx context.Context, p *put, m *Manifest, progress Progress, similar []ArtifactRef) error {
	p.counter = counter{report: progress, total: m.Bytes()}
	found, err := b.readManifest(ctx, p.name)
	switch {
	case err == nil:
		p.dry = true
	case !isMissing(err):
		return err
	default:
		if p.existing, err = b.objects(ctx, p.name); err != nil {
			return err
		}
		if err := p.findSimilar(ctx, similar); err != nil {
			return err
		}
	}
	if err := p.files(ctx, m.Files); err != nil {
		return err
	}
	if err := p.checkUnchanged(); err != nil {
		return err
	}
	if p.dry {
		return compare(*m, found)
	}
	// Also if none was copied: this process may have been stopped, and its files swept, meanwhile.
	if err := b.verifySizes(ctx, p.name, m.Files); err != nil {
		return err
	}
	return b.writeManifest(ctx, p.name, *m)
}

// ListFiles lists the files of a directory, ordered by name, without hashes: those of the artifact that
// PutArtifact would make of it. A file that is not regular is an error.
func ListFiles(dir string) (files []File, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f := File{Name: filepath.ToSlash(relative), Size: info.Size()}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file: %w", f.Name, fs.ErrInvalid)
		}
		files = append(files, f)
		return checkName(f.Name)
	})
	slices.SortFunc(files, func(x, y File) int { return cmp.Compare(x.Name, y.Name) })
	return files, err
}

// put is one call of PutArtifact or PutFile.
type put struct {
	b         *Bucket
	name, dir string
	file      string      // the only file, instead of those in dir
	before    fs.FileInfo // of file; nil for files in dir
	dry       bool        // compute hashes and upload nothing
	counter   counter
	existing  map[string]minio.ObjectInfo // by key
	similar   map[content]sourceObject
}

// files uploads the files and sets their hashes: first the small ones, concurrently, then the
// large ones, of which each has concurrent parts.
func (p *put) files(ctx context.Context, files []File) error {
	// Requests in flight end, after an error, but no further one begins.
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(p.b.options.Connections)
	var large []*File
	for i := range files {
		if files[i].Size > p.b.options.PartSize {
			large = append(large, &files[i])
			continue
		}
		group.Go(func() error {
			if err := groupCtx.Err(); err != nil {
				return err
			}
			return p.small(ctx, &files[i])
		})
	}
	if err := group.Wait(); err != nil || len(large) == 0 {
		return err
	}
	unfinished := make(map[string]upload)
	if !p.dry {
		found, err := p.b.uploads(ctx, p.name)
		if err != nil {
			return err
		}
		for _, u := range found {
			if !u.Initiated.Before(unfinished[u.Key].Initiated) {
				unfinished[u.Key] = u
			}
		}
	}
	for _, f := range large {
		if err := p.large(ctx, f, unfinished[p.b.key(p.name, f.Name)]); err != nil {
			return err
		}
	}
	if p.dry {
		return nil
	}
	// A request that started an upload may have been sent twice.
	return p.b.abortUploads(ctx, p.name)
}

func (p *put) open(f *File) (*os.File, error) {
	if p.file != "" {
		return os.Open(p.file)
	}
	return os.Open(filepath.Join(p.dir, filepath.FromSlash(f.Name)))
}

func (p *put) small(ctx context.Context, f *File) error {
	file, err := p.open(f)
	if err != nil {
		return err
	}
	defer file.Close()
	content := make([]byte, f.Size)
	if err := readFull(file, f, content, true); err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	f.SHA256 = hex.EncodeToString(sum[:])
	key := p.b.key(p.name, f.Name)
	if found, ok := p.existing[key]; !p.dry && (!ok || found.Size != f.Size || found.ETag != etagOf(content)) {
		if copied, err := p.copySimilar(ctx, f, key); copied || err != nil {
			return err
		}
		options := minio.PutObjectOptions{ContentType: contenttype.Of(f.Name), CacheControl: immutable}
		if _, err := p.b.putBytes(ctx, key, content, options); err != nil {
			return err
		}
	}
	p.counter.add(f.Size)
	return nil
}

// checkUnchanged returns ErrChanged if the only file has been written since PutFile began.
func (p *put) checkUnchanged() error {
	if p.before == nil {
		return nil
	}
	after, err := os.Stat(p.file)
	if err == nil && (after.Size() != p.before.Size() || !after.ModTime().Equal(p.before.ModTime())) {
		err = fmt.Errorf("%s: %w", p.file, ErrChanged)
	}
	return err
}

// ErrChanged means that a file was written while it was uploaded. The artifact does not exist, unless it
// did so before.
var ErrChanged = errors.New("the file was changed while it was uploaded")

// readFull fills buffer from a file that must have as many bytes, and at its end no more.
func readFull(file io.Reader, f *File, buffer []byte, isLast bool) error {
	_, err := io.ReadFull(file, buffer)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: %w", f.Name, ErrChanged)
	}
	if err != nil || !isLast {
		return err
	}
	switch n, err := file.Read(make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%s: %w", f.Name, ErrChanged)
	case err != io.EOF:
		return err
	}
	return nil
}

// etagOf is the ETag that services give to an object that was written by one request or that
// is one part, unless they encrypt it. It only saves an upload.
func etagOf(content []byte) string {
	sum := md5.Sum(content)
	return hex.EncodeToString(sum[:])
}

// partSize returns the size of the parts of a file.
func (b *Bucket) partSize(size int64) int64 {
	needed := (size + maxParts - 1) / maxParts
	return max(b.options.PartSize, (needed+mib-1)/mib*mib)
}

// eachPart reads a file in parts and passes each to use, which must not keep it. It sets the
// hash of the file.
func (p *put) eachPart(
	ctx context.Context, f *File, use func(number int, content []byte) error, newBuffer func(int64) []byte,
) error {
	file, err := p.open(f)
	if err != nil {
		return err
	}
	defer file.Close()
	sums := newFileHash()
	size := p.b.partSize(f.Size)
	for number, from := 1, int64(0); from < f.Size; number, from = number+1, from+size {
		if err := ctx.Err(); err != nil {
			return err
		}
		content := newBuffer(min(size, f.Size-from))
		if err := readFull(file, f, content, from+size >= f.Size); err != nil {
			return err
		}
		sums.Write(content)
		if err := use(number, content); err != nil {
			return err
		}
	}
	f.SHA256, f.Blocks = sums.finish()
	return nil
}
