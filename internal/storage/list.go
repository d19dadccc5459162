package storage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Artifact is one that ListArtifacts found.
type Artifact struct {
	Name string
	// Complete says that the artifact has its manifest. Without one it does not exist for
	// readers: it is being written or deleted, or that was interrupted.
	Complete bool
	// Modified is when the service received the manifest or, without one, the last byte, by its
	// own clock; see [Bucket.Now].
	Modified time.Time
	// Bytes is the size of its objects and of the parts of unfinished uploads. Only
	// MeasureArtifacts sets it.
	Bytes int64
}

// ListArtifacts lists the artifacts directly in a directory of names, ordered by name, also
// those without a manifest. Everything in such a directory counts as an artifact: list only
// directories of artifacts. The name "" is that of the address itself.
func (b *Bucket) ListArtifacts(ctx context.Context, dir string) ([]Artifact, error) {
	found, err := b.listArtifacts(ctx, dir)
	return found, b.wrap(ctx, err, "list artifacts in", b.address.String()+"/"+dir)
}

func (b *Bucket) listArtifacts(ctx context.Context, dir string) ([]Artifact, error) {
	names, unfinished, err := b.listNames(ctx, dir)
	if err != nil {
		return nil, err
	}
	var artifacts []Artifact
	for _, name := range names {
		a := Artifact{Name: strings.TrimPrefix(dir+"/"+name, "/")}
		if err := b.inspect(ctx, &a, unfinished); err != nil {
			return nil, err
		}
		artifacts = append(artifacts, a)
	}
	return artifacts, ctx.Err()
}

// MeasureArtifacts is ListArtifacts with the sizes, which come from a list of all objects. Documents
// in the directory are complete artifacts.
func (b *Bucket) MeasureArtifacts(ctx context.Context, dir string) ([]Artifact, error) {
	if err := checkName(dir); err != nil {
		return nil, err
	}
	found, err := b.measureArtifacts(ctx, dir)
	return found, b.wrap(ctx, err, "measure artifacts in", b.address.String()+"/"+dir)
}

func (b *Bucket) measureArtifacts(ctx context.Context, dir string) ([]Artifact, error) {
	found := make(map[string]Artifact)
	// add adds to the artifact that has a key, and sets its time if it has none newer.
	add := func(key string, bytes int64, modified time.Time) {
		name, file, isArtifact := strings.Cut(strings.TrimPrefix(key, b.directory(dir)), "/")
		a := found[name]
		a.Name = dir + "/" + name
		a.Bytes += bytes
		switch {
		case !isArtifact || file == manifestName:
			a.Complete, a.Modified = true, modified
		case !a.Complete && modified.After(a.Modified):
			a.Modified = modified
		}
		found[name] = a
	}
	objects, err := b.objects(ctx, dir)
	if err != nil {
		return nil, err
	}
	for key, o := range objects {
		add(key, o.Size, o.LastModified)
	}
	unfinished, err := b.uploads(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, u := range unfinished {
		parts, err := b.parts(ctx, u)
		if err != nil && !hasCode(err, "NoSuchUpload") {
			return nil, err
		}
		add(u.Key, 0, u.Initiated)
		for _, p := range parts {
			add(u.Key, p.Size, p.LastModified)
		}
	}
	byName := func(x, y Artifact) int { return cmp.Compare(x.Name, y.Name) }
	return slices.SortedFunc(maps.Values(found), byName), ctx.Err()
}

// ListNames lists what is directly in a directory of names and has objects or unfinished uploads
// below it: the last elements of the names, ordered. The name "" is that of the address itself.
func (b *Bucket) ListNames(ctx context.Context, dir string) ([]string, error) {
	names, _, err := b.listNames(ctx, dir)
	return names, b.wrap(ctx, err, "list names in", b.address.String()+"/"+dir)
}

func (b *Bucket) listNames(ctx context.Context, dir string) (names []string, unfinished []upload, err error) {
	if dir != "" {
		if err := checkName(dir); err != nil {
			return nil, nil, err
		}
	}
	prefix := b.directory(dir)
	found := make(map[string]bool)
	list := minio.ListObjectsOptions{Prefix: prefix}
	for o := range b.core.ListObjectsIter(ctx, b.address.Bucket, list) {
		if o.Err != nil {
			return nil, nil, o.Err
		}
		if name, ok := strings.CutSuffix(o.Key, "/"); ok {
			found[strings.TrimPrefix(name, prefix)] = true
		}
	}
	// An artifact whose first large file is being uploaded has no object yet.
	if unfinished, err = b.uploads(ctx, dir); err != nil {
		return nil, nil, err
	}
	for _, u := range unfinished {
		if name, _, ok := strings.Cut(strings.TrimPrefix(u.Key, prefix), "/"); ok {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), unfinished, ctx.Err()
}

// directory returns the prefix of the keys below a name, which may be "".
func (b *Bucket) directory(name string) string {
	if key := b.key(name); key != "" {
		return key + "/"
	}
	return ""
}

func (b *Bucket) inspect(ctx context.Context, a *Artifact, unfinished []upload) error {
	info, err := b.core.StatObject(ctx, b.address.Bucket, b.key(a.Name, manifestName), minio.StatObjectOptions{})
	if a.Complete = err == nil; a.Complete {
		a.Modified = info.LastModified
	}
	if a.Complete || !isMissing(err) {
		return err
	}
	objects, err := b.objects(ctx, a.Name)
	if err != nil {
		return err
	}
	newest := func(t time.Time) {
		if t.After(a.Modified) {
			a.Modified = t
		}
	}
	for _, o := range objects {
		newest(o.LastModified)
	}
	for _, u := range unfinished {
		if !strings.HasPrefix(u.Key, b.directory(a.Name)) {
			continue
		}
		newest(u.Initiated)
		parts, err := b.parts(ctx, u)
		if err != nil && !hasCode(err, "NoSuchUpload") {
			return err
		}
		for _, p := range parts {
			newest(p.LastModified)
		}
	}
	return nil
}

// DeleteArtifact deletes an artifact, or the rest of one, and its unfinished uploads. The
// manifest is deleted first, so that no reader sees a part of it. It is no error if there is
// none. A repeated call deletes what a failed one left.
func (b *Bucket) DeleteArtifact(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return b.wrap(ctx, b.deleteArtifact(ctx, name), "delete artifact", name)
}

// deletePasses is how often objects are listed and deleted. The last list must be empty.
const deletePasses = 4

func (b *Bucket) deleteArtifact(ctx context.Context, name string) error {
	manifest := b.key(name, manifestName)
	if err := b.core.RemoveObject(ctx, b.address.Bucket, manifest, minio.RemoveObjectOptions{}); err != nil {
		return err
	}
	if err := b.abortUploads(ctx, name); err != nil {
		return err
	}
	for range deletePasses {
		objects, err := b.objects(ctx, name)
		if err != nil || len(objects) == 0 {
			return err
		}
		if err := b.remove(ctx, slices.Collect(maps.Values(objects))); err != nil {
			return err
		}
	}
	return errors.New("the service lists objects after it has deleted them")
}

func (b *Bucket) remove(ctx context.Context, objects []minio.ObjectInfo) error {
	slices.SortFunc(objects, func(x, y minio.ObjectInfo) int { return cmp.Compare(x.Key, y.Key) })
	results, err := b.core.RemoveObjectsWithIter(ctx, b.address.Bucket, slices.Values(objects),
		minio.RemoveObjectsOptions{})
	if err != nil {
		return err
	}
	var failed error
	for r := range results {
		if failed == nil {
			failed = r.Err
		}
	}
	return failed
}
