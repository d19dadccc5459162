package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/stages"
)

// A task keeps the address of its stored source when the location of results changes: ingest looks for it in
// the location that it uses, by its id. In a directory it has the same names as in a bucket.

// storedSources lists the names of the stored sources in a location.
func (p Location) storedSources(ctx context.Context) (names []string, err error) {
	if p.Bucket != nil {
		artifacts, err := p.Bucket.storage.ListArtifacts(ctx, sourcesDir)
		for _, a := range artifacts {
			if a.Complete {
				names = append(names, a.Name)
			}
		}
		return names, err
	}
	ids, err := readNames(p.path(sourcesDir))
	for _, id := range ids {
		name := path.Join(sourcesDir, id)
		if _, err := storedFile(p.path(name)); err == nil && path.Ext(id) != ".tmp" {
			names = append(names, name)
		}
	}
	return names, err
}

// storedFile returns the path of the only file in the directory of a stored source. It returns
// fs.ErrNotExist if there is none.
func storedFile(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) != 1 || !entries[0].Type().IsRegular() || entries[0].Name() != sourceFile+safeExtension(entries[0].Name()) {
		return "", fmt.Errorf("%s has no stored source: %w", dir, fs.ErrNotExist)
	}
	return filepath.Join(dir, entries[0].Name()), nil
}

// linkRelocated uses a stored source that was copied from a bucket to the data directory.
func (c Config) linkRelocated(ctx context.Context, job *stages.Job, artifact, name, file string) (f fetch.File, path string, err error) {
	stored, err := storedFile(c.DataLocation().path(artifact))
	if errors.Is(err, fs.ErrNotExist) {
		err = &fetch.Error{Source: redact.Source(job.Source), Permanent: true, Err: err}
	}
	if err != nil {
		return f, "", err
	}
	return c.linkCopy(ctx, job, stored, name, file)
}

// deleteRelocated deletes a stored source from the data directory when ingest has a copy. If it cannot, the
// file stays.
func (c Config) deleteRelocated(source string) {
	artifact, _, ok := parseStoredSource(source)
	if !ok || c.Bucket != nil {
		return
	}
	dir := c.DataLocation().path(artifact)
	if file, err := storedFile(dir); err == nil {
		_ = os.Remove(file)
		_ = os.Remove(dir)
	}
}
