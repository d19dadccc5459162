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
	if err := to.verifySizes(ctx, toName, m.Files); err != nil {
		return err
	}
	if err := to.abortUploads(ctx, toName); err != nil { // those of failed calls
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
	return c.to.copyFile(ctx, f, sourceObject{c.from, source}, key, &c.counter)
}

// sourceObject is an object that the service may copy.
type sourceObject struct {
	from *Bucket
	minio.ObjectInfo
}

// copyFile lets the service copy an object to a key of b.
func (b *Bucket) copyFile(ctx context.Context, f File, source sourceObject, key string, count *counter) error {
	if f.Size > b.options.CopyPartSize {
		return b.copyParts(ctx, f, source, key, count)
	}
	_, err := b.core.Client.CopyObject(ctx, minio.CopyDestOptions{
		Bucket: b.address.Bucket, Object: key,
		ReplaceMetadata: true, ContentType: contenttype.Of(f.Name), CacheControl: immutable,
	}, minio.CopySrcOptions{Bucket: source.from.address.Bucket, Object: source.Key, MatchETag: source.ETag})
	if err == nil {
		count.add(f.Size)
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

// copyParts copies an object that is too large for one request.
func (b *Bucket) copyParts(ctx context.Context, f File, source sourceObject, key string, count *counter) error {
	bucket := b.address.Bucket
	id, err := b.core.NewMultipartUpload(ctx, bucket, key,
		minio.PutObjectOptions{ContentType: contenttype.Of(f.Name), CacheControl: immutable})
	if err != nil {
		return err
	}
	size := max(b.options.CopyPartSize, (f.Size+maxParts-1)/maxParts)
	parts := make([]minio.CompletePart, (f.Size+size-1)/size)
	match := map[string]string{"x-amz-copy-source-if-match": source.ETag}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(b.options.Connections)
	for i := range parts {
		group.Go(func() error {
			from := int64(i) * size
			length := min(size, f.Size-from)
			part, err := b.core.CopyObjectPart(groupCtx, source.from.address.Bucket, source.Key, bucket, key, id, i+1,
				from, length, match)
			if err == nil {
				count.add(length)
			}
			parts[i] = part
			return sourceError(f, err)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return b.complete(ctx, upload{Key: key, UploadID: id}, parts, f.Size)
}

// verifySizes checks that the service has all files of an artifact before its manifest is written.
// Services answer that a copy succeeded before it has.
func (b *Bucket) verifySizes(ctx context.Context, name string, files []File) error {
	found, err := b.objects(ctx, name)
	if err != nil {
		return err
	}
	for _, f := range files {
		if o, ok := found[b.key(name, f.Name)]; !ok || o.Size != f.Size {
			return fmt.Errorf("%w: the service does not have %s", ErrCorrupt, f.Name)
		}
	}
	return nil
}
