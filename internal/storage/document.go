package storage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/contenttype"
)

// replaceable is the Cache-Control of documents: players see a new version after at most five
// seconds.
const replaceable = "public, max-age=5, must-revalidate"

// maxDocument is the largest object that is read into memory.
const maxDocument = 64 * mib

// ReadDocument returns a document and its version, for WriteDocument. It returns
// fs.ErrNotExist if there is none.
func (b *Bucket) ReadDocument(ctx context.Context, name string) (content []byte, version string, err error) {
	if err := checkName(name); err != nil {
		return nil, "", err
	}
	content, version, err = b.readObject(ctx, b.key(name))
	return content, version, b.wrap(ctx, err, "read", name)
}

func (b *Bucket) readObject(ctx context.Context, key string) (content []byte, etag string, err error) {
	for range b.options.Tries {
		content, etag, err = b.tryReadObject(ctx, key)
		e, isService := errors.AsType[*ServiceError](b.explain(ctx, err))
		if !isService || e.Kind != Cut || ctx.Err() != nil {
			break
		}
	}
	return content, etag, err
}

func (b *Bucket) tryReadObject(ctx context.Context, key string) (content []byte, etag string, err error) {
	body, info, _, err := b.core.GetObject(ctx, b.address.Bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", err
	}
	defer body.Close()
	if info.Size > maxDocument {
		return nil, "", fmt.Errorf("it has %d bytes; the limit is %d", info.Size, maxDocument)
	}
	content, err = io.ReadAll(io.LimitReader(body, maxDocument))
	if err == nil && int64(len(content)) != info.Size {
		err = io.ErrUnexpectedEOF
	}
	return content, info.ETag, err
}

// WriteDocument writes a document and returns its version. With "" as the version to replace,
// there must be no document yet. If another writer was first, it returns ErrConflict.
//
// After any other error the document has the old or the new content; a repeated call succeeds
// in both cases.
func (b *Bucket) WriteDocument(
	ctx context.Context, name string, content []byte, replace string,
) (version string, err error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	options := minio.PutObjectOptions{ContentType: contenttype.Of(name), CacheControl: replaceable}
	if replace == "" {
		options.SetMatchETagExcept("*")
	} else {
		options.SetMatchETag(replace)
	}
	version, err = b.putBytes(ctx, b.key(name), content, options)
	if isLost(err) || replace != "" && isMissing(err) {
		// A request whose answer was lost may have written it.
		found, current, readErr := b.readObject(ctx, b.key(name))
		if readErr == nil && string(found) == string(content) {
			return current, nil
		}
		if readErr != nil && !isMissing(readErr) {
			return "", b.wrap(ctx, readErr, "write", name)
		}
		return "", fmt.Errorf("write %s: %w", name, ErrConflict)
	}
	return version, b.wrap(ctx, err, "write", name)
}

// DeleteDocument deletes a document, whatever its version is. It is no error if there is none.
func (b *Bucket) DeleteDocument(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := b.core.RemoveObject(ctx, b.address.Bucket, b.key(name), minio.RemoveObjectOptions{})
	return b.wrap(ctx, err, "delete", name)
}
