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

// A task keeps the address of its stored source when that is moved: ingest looks for it in the location
// of results that it uses, by its id. In a directory it has the same names as in a bucket.

// CopySources copies the stored sources that the new location of results does not have. Call it
// between Begin and Finish: a copy that is made while workers use the old location stays in the new one
// if its task is ingested before the move.
func (m *Move) CopySources(ctx context.Context) (done CopyResult, err error) {
	names, err := m.sources(ctx)
	if err != nil {
		return done, err
	}
	for _, name := range names {
		var one CopyResult // they have no files in common
		if _, err := m.copyDir(ctx, m.Data, name, privateMode, &one); err != nil {
			return done, fmt.Errorf("%s: %w", name, err)
		}
		done.Copied += one.Copied
		done.Present += one.Present
		done.Bytes += one.Bytes
	}
	return done, nil
}

// sources lists the stored sources in the old location.
func (m *Move) sources(ctx context.Context) (names []string, err error) {
	from := m.Data.From
	if m.Data == (Route{}) {
		return nil, nil
	}
	if from.Bucket != nil {
		artifacts, err := from.Bucket.storage.ListArtifacts(ctx, sourcesDir)
		for _, a := range artifacts {
			if a.Complete {
				names = append(names, a.Name)
			}
		}
		return names, err
	}
	ids, err := readNames(from.path(sourcesDir))
	for _, id := range ids {
		name := path.Join(sourcesDir, id)
		if _, err := storedFile(from.path(name)); err == nil && path.Ext(id) != ".tmp" {
			names = append(names, name)
		}
	}
	return names, err
}

// RemoveSources deletes the stored sources from the old location, if it is a bucket. It returns an error
// unless the move is complete. The new location need not have them: their tasks may be ingested.
func (m *Move) RemoveSources(ctx context.Context) error {
	if err := m.checkComplete(ctx); err != nil || m.Data.From.Bucket == nil {
		return err
	}
	from := m.Data.From.Bucket.storage
	ids, err := from.ListNames(ctx, sourcesDir)
	for _, id := range ids {
		if err := from.DeleteArtifact(ctx, path.Join(sourcesDir, id)); err != nil {
			return err
		}
	}
	return err
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

// linkMoved uses a stored source that was moved to the data directory.
func (c Config) linkMoved(ctx context.Context, job *stages.Job, artifact, name, file string) (f fetch.File, path string, err error) {
	stored, err := storedFile(c.DataLocation().path(artifact))
	if errors.Is(err, fs.ErrNotExist) {
		err = &fetch.Error{Source: redact.Source(job.Source), Permanent: true, Err: err}
	}
	if err != nil {
		return f, "", err
	}
	return c.linkCopy(ctx, job, stored, name, file)
}

// deleteMoved deletes a stored source from the data directory when ingest has a copy. If it cannot, the
// file stays.
func (c Config) deleteMoved(source string) {
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
