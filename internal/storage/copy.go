package storage

import (
	"context"
	"fmt"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/contenttype"
)

// CopyArtifact copies an artifact to a new name in another bucket or prefix of the same
// service, which copies the files itself; the credentials of the target must allow it to read
// the source. Segments are copied first, playlists and manifests of players then, and the
// manifest of the artifact last.
//
// It can be repeated after an error. It returns fs.ErrNotExist if the source does not exist,
// and fs.ErrExist if the target exists with other files.
func (b *Bucket) CopyArtifact(ctx context.Context, name string, to *Bucket, toName string, progress Progress) error {
	return to.wrap(ctx, b.copyArtifact(ctx, name, to, toName, progress), "copy artifact", name)
}

func (b *Bucket) copyArtifact(ctx context.Context, name string, to *Bucket, toName string, progress Progress) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := checkName(toName); err != nil {
		return err
	}
	if b.address.Endpoint != to.address.Endpoint {
		return fmt.Errorf("%s and %s are in two services, so neither can copy", b.address, to.address)
	}
	m, err := b.readManifest(ctx, name)
	if err != nil {
		return err
	}
	switch found, err := to.readManifest(ctx, toName); {
	case err == nil:
		return compare(m, found)
	case !isMissing(err):
		return err
	}
	c := copying{from: b, to: to, name: name, toName: toName, counter: counter{report: progress, total: m.Bytes()}}
	if c.sources, err = b.objects(ctx, name); err != nil {
		return err
	}
	if c.existing, err = to.objects(ctx, toName); err != nil {
		return err
	}
	for _, playlists := range []bool{false, true} {
		if err := c.files(ctx, m.Files, playlists); err != nil {
			return err
		}
	}
	if err := c.verify(ctx, m.Files); err != nil {
		return err
	}
	return to.writeManifest(ctx, toName, m)
}

// copying is one call of CopyArtifact.
type copying struct {
	from, to          *Bucket
	name, toName      string
	sources, existing map[string]minio.ObjectInfo // by key
	counter           counter
}

func (c *copying) files(ctx context.Context, files []File, playlists bool) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.to.options.Connections)
	for _, f := range files {
		if isManifest(f.Name) == playlists {
			group.Go(func() error { return c.file(groupCtx, f) })
		}
	}
	return group.Wait()
}

func (c *copying) file(ctx context.Context, f File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key := c.to.key(c.toName, f.Name)
	source, ok := c.sources[c.from.key(c.name, f.Name)]
	if !ok || source.Size != f.Size {
		return fmt.Errorf("%w: %s is missing or has another size than the manifest says", ErrCorrupt, f.Name)
	}
	if found, ok := c.existing[key]; ok && found.Size == f.Size && found.ETag == source.ETag {
		c.counter.add(f.Size)
		return nil
	}
	if f.Size > c.to.options.CopyPartSize {
		return c.inParts(ctx, f, source, key)
	}
	_, err := c.to.core.Client.CopyObject(ctx, minio.CopyDestOptions{
		Bucket: c.to.address.Bucket, Object: key,
		ReplaceMetadata: true, ContentType: contenttype.Of(f.Name), CacheControl: immutable,
	}, minio.CopySrcOptions{Bucket: c.from.address.Bucket, Object: source.Key, MatchETag: source.ETag})
	if err == nil {
		c.counter.add(f.Size)
	}
	return sourceError(f, err)
}

// sourceError explains the only condition of a copy, which is the ETag of the source.
func sourceError(f File, err error) error {
	if isLost(err) {
		return fmt.Errorf("%w: %s was changed while it was copied", ErrCorrupt, f.Name)
	}
	return err
}

// inParts copies an object that is too large for one request.
func (c *copying) inParts(ctx context.Context, f File, source minio.ObjectInfo, key string) error {
	bucket := c.to.address.Bucket
	id, err := c.to.core.NewMultipartUpload(ctx, bucket, key,
		minio.PutObjectOptions{ContentType: contenttype.Of(f.Name), CacheControl: immutable})
	if err != nil {
		return err
	}
	size := max(c.to.options.CopyPartSize, (f.Size+maxParts-1)/maxParts)
	parts := make([]minio.CompletePart, (f.Size+size-1)/size)
	match := map[string]string{"x-amz-copy-source-if-match": source.ETag}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.to.options.Connections)
	for i := range parts {
		group.Go(func() error {
			from := int64(i) * size
			length := min(size, f.Size-from)
			part, err := c.to.core.CopyObjectPart(groupCtx, c.from.address.Bucket, source.Key, bucket, key, id, i+1,
				from, length, match)
			if err == nil {
				c.counter.add(length)
			}
			parts[i] = part
			return sourceError(f, err)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.to.complete(ctx, upload{Key: key, UploadID: id}, parts, f.Size)
}

// verify checks that the service has all files in the target, because services answer that a
// copy succeeded before it has, and removes what failed calls left.
func (c *copying) verify(ctx context.Context, files []File) error {
	found, err := c.to.objects(ctx, c.toName)
	if err != nil {
		return err
	}
	for _, f := range files {
		if o, ok := found[c.to.key(c.toName, f.Name)]; !ok || o.Size != f.Size {
			return fmt.Errorf("%w: the service did not copy %s", ErrCorrupt, f.Name)
		}
	}
	return c.to.abortUploads(ctx, c.toName)
}
