package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
)

// A stored source is a copy in the bucket of a file that one host received. It is an artifact with
// one file, below sourcesDir. Its address is the source of the task, so that any host can ingest it:
// BUCKET/sources/ID/NAME, where NAME is the file's own name, for display.
const sourcesDir = "sources"

// sourceFile is the name of a source in its artifact, before its extension.
const sourceFile = "source"

// StoreSource copies a local file into the bucket and returns the address of the copy, which is a
// source that any host with the bucket can ingest. The id is that of the copy, and valid as the
// name of a file; with the same id and file, a repeated call continues. Ingest takes a copy of its
// own; a later stage of the task deletes this one.
func (b *Bucket) StoreSource(ctx context.Context, id, file, name string) (address string, err error) {
	artifact := path.Join(sourcesDir, id)
	_, err = b.storage.PutFile(ctx, artifact, file, sourceFile+safeExtension(name), nil)
	if errors.Is(err, storage.ErrChanged) {
		err = fmt.Errorf("%w; is something still writing to it?", err)
		// Another process may have stored the file before, and have made a task of it.
		if _, findErr := b.storage.ReadManifest(ctx, artifact); errors.Is(findErr, fs.ErrNotExist) {
			err = errors.Join(err, b.storage.DeleteArtifact(ctx, artifact))
		}
	}
	if err != nil {
		return "", fmt.Errorf("store source: %w", err)
	}
	return b.SourceAddress(id, name), nil
}

// SourceAddress returns the address of the copy that StoreSource makes.
func (b *Bucket) SourceAddress(id, name string) string {
	return b.String() + "/" + path.Join(sourcesDir, id, url.PathEscape(cmp.Or(name, sourceFile)))
}

// storedSource returns the artifact and the display name of an address that StoreSource returned.
func (b *Bucket) storedSource(address string) (artifact, name string, ok bool) {
	if b == nil {
		return "", "", false
	}
	return parseStoredSource(address)
}

// parseStoredSource returns the name of the artifact and the display name of an address that StoreSource
// returned, also if it is in another location since. The random id in it finds the copy.
func parseStoredSource(address string) (artifact, name string, ok bool) {
	parts := strings.Split(address, "/")
	if !IsBucketAddress(address) || len(parts) < 6 { // s3://BUCKET/sources/ID/NAME
		return "", "", false
	}
	parts = parts[len(parts)-3:]
	artifact = path.Join(parts[:2]...)
	if parts[0] != sourcesDir || !fs.ValidPath(artifact) || path.Dir(artifact) != sourcesDir {
		return "", "", false
	}
	name, err := url.PathUnescape(parts[2])
	return artifact, strings.ToValidUTF8(name, "\uFFFD"), err == nil
}

// StoredSourceID returns the id of the copy at an address that StoreSource returned, also if it is in another
// location since; empty for other sources.
func StoredSourceID(address string) string {
	artifact, _, ok := parseStoredSource(address)
	if !ok {
		return ""
	}
	return path.Base(artifact)
}

// SourceDigest returns the size and the SHA-256 of the copy at an address that StoreSource returned.
// It returns fs.ErrNotExist if there is none.
func (b *Bucket) SourceDigest(ctx context.Context, address string) (size int64, sum string, err error) {
	artifact, _, ok := b.storedSource(address)
	if !ok {
		return 0, "", fmt.Errorf("%s is not a source in %s: %w", redact.Source(address), b, fs.ErrNotExist)
	}
	m, err := b.storage.ReadManifest(ctx, artifact)
	if err != nil || len(m.Files) != 1 {
		return 0, "", err
	}
	return m.Files[0].Size, m.Files[0].SHA256, nil
}

// DeleteSource deletes the copy at an address that StoreSource returned. Other sources it leaves.
func (b *Bucket) DeleteSource(ctx context.Context, address string) error {
	artifact, _, ok := b.storedSource(address)
	if !ok {
		return nil
	}
	return b.storage.DeleteArtifact(ctx, artifact)
}

// fetchSource fetches the job's source into the new file, or into one of that name with an
// extension, and returns its path. Of a source that is in the bucket, origin is the artifact.
func (c Config) fetchSource(ctx context.Context, job *stages.Job, file string) (f fetch.File, path, origin string, err error) {
	artifact, name, isStored := parseStoredSource(job.Source)
	switch {
	case isStored && c.Bucket != nil:
		origin = artifact
		f, path, err = c.fetchStored(ctx, job, artifact, file)
		f.Name = name
	case isStored:
		f, path, err = c.linkRelocated(ctx, job, artifact, name, file)
	default:
		if f, err = fetch.Fetch(ctx, job.Source, file, c.fetchOptions(filepath.Dir(filepath.Dir(file)), job)); err == nil {
			path, err = addExtension(file, f.Name)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return c.fetchKeptCopy(ctx, job, file, err)
	}
	return f, path, origin, err
}

// fetchStored downloads the source in an artifact: that of StoreSource, or of an earlier ingest.
func (c Config) fetchStored(ctx context.Context, job *stages.Job, artifact, file string) (f fetch.File, to string, err error) {
	dir := filepath.Join(filepath.Dir(file), "stored")
	m, err := c.Bucket.storage.GetArtifact(ctx, artifact, dir, nil, reportTransfer(job, "fetching"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Neither another attempt nor another host finds it.
		return f, "", &fetch.Error{Source: redact.Source(job.Source), Permanent: true, Err: err}
	case err != nil:
		return f, "", err
	case len(m.Files) != 1:
		return f, "", fmt.Errorf("the artifact %s has %d files instead of a source", artifact, len(m.Files))
	}
	stored := m.Files[0]
	to = filepath.Join(filepath.Dir(file), stored.Name)
	if err := os.Rename(filepath.Join(dir, stored.Name), to); err != nil {
		return f, "", fmt.Errorf("name source: %w", err)
	}
	if err := os.Remove(dir); err != nil {
		return f, "", fmt.Errorf("name source: %w", err)
	}
	return fetch.File{Bytes: stored.Size, SHA256: stored.SHA256, Method: fetch.Download}, to, nil
}

// putSource stores the result of ingest. If the source is in the bucket already, the service
// copies it.
func (b *bucketResults) putSource(ctx context.Context, job *stages.Job, dir, origin string) error {
	if origin == "" {
		return b.putDir(ctx, job, dir)
	}
	bucket := b.config.Bucket.storage
	err := bucket.CopyArtifact(ctx, origin, bucket, artifactName(job.Task, dir), reportTransfer(job, "storing"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrCorrupt) {
		return b.putDir(ctx, job, dir) // it was deleted meanwhile, and is here
	}
	return err
}
