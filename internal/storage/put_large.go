package storage

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/contenttype"
)

// large uploads a file in parts and continues an unfinished upload of it.
func (p *put) large(ctx context.Context, f *File, unfinished upload) error {
	key := p.b.key(p.name, f.Name)
	found, exists := p.existing[key]
	exists = exists && found.Size == f.Size
	if p.dry || exists || p.isSimilarSize(f.Size) {
		etag, err := p.hashOnly(ctx, f)
		if err != nil || p.dry || exists && etag == found.ETag {
			p.counter.add(f.Size)
			return err
		}
		if copied, err := p.copySimilar(ctx, f, key); copied || err != nil {
			return err
		}
	}
	have := make(map[int]minio.ObjectPart)
	var err error
	if unfinished.UploadID != "" {
		have, err = p.b.parts(ctx, unfinished)
	} else {
		options := minio.PutObjectOptions{ContentType: contenttype.Of(f.Name), CacheControl: immutable}
		unfinished.UploadID, err = p.b.core.NewMultipartUpload(ctx, p.b.address.Bucket, key, options)
	}
	if err != nil {
		return err
	}
	unfinished.Key = key
	parts, err := p.sendParts(ctx, f, unfinished, have)
	if err != nil {
		return err
	}
	return p.b.complete(ctx, unfinished, parts, f.Size)
}

// hashOnly sets the file's hash, and returns the ETag that the uploaded file would have.
func (p *put) hashOnly(ctx context.Context, f *File) (etag string, err error) {
	var sums []byte
	var buffer []byte
	err = p.eachPart(ctx, f, func(_ int, content []byte) error {
		sum := md5.Sum(content)
		sums = append(sums, sum[:]...)
		return nil
	}, func(size int64) []byte {
		if int64(len(buffer)) < size {
			buffer = make([]byte, size)
		}
		return buffer[:size]
	})
	return fmt.Sprintf("%s-%d", etagOf(sums), len(sums)/md5.Size), err
}

// sendParts uploads the parts that the service does not have.
func (p *put) sendParts(
	ctx context.Context, f *File, u upload, have map[int]minio.ObjectPart,
) ([]minio.CompletePart, error) {
	size := p.b.partSize(f.Size)
	parts := make([]minio.CompletePart, (f.Size+size-1)/size)
	group, groupCtx := errgroup.WithContext(ctx)
	// A buffer per connection, so that memory is bounded and the next part is read only when
	// a connection is free.
	buffers := make(chan []byte, p.b.options.Connections)
	for range p.b.options.Connections {
		buffers <- nil
	}
	err := p.eachPart(groupCtx, f, func(number int, content []byte) error {
		group.Go(func() error {
			defer func() { buffers <- content[:cap(content)] }()
			// Not groupCtx: an error on one connection must not waste the parts on the others.
			part, err := p.sendPart(ctx, u, number, content, have[number])
			parts[number-1] = part
			return err
		})
		return nil
	}, func(n int64) []byte {
		buffer := <-buffers
		if int64(cap(buffer)) < n {
			buffer = make([]byte, size)
		}
		return buffer[:n]
	})
	if groupErr := group.Wait(); groupErr != nil {
		return nil, groupErr
	}
	return parts, err
}

func (p *put) sendPart(
	ctx context.Context, u upload, number int, content []byte, have minio.ObjectPart,
) (minio.CompletePart, error) {
	size := int64(len(content))
	if have.Size != size || have.ETag != etagOf(content) {
		sum := sha256.Sum256(content)
		var err error
		have, err = p.b.core.PutObjectPart(ctx, p.b.address.Bucket, u.Key, u.UploadID, number, bytes.NewReader(content), size,
			minio.PutObjectPartOptions{Sha256Hex: hex.EncodeToString(sum[:]), DisableContentSha256: true})
		if err != nil {
			return minio.CompletePart{}, err
		}
	}
	p.counter.add(size)
	return minio.CompletePart{PartNumber: number, ETag: have.ETag}, nil
}

// complete makes an object of the parts. If the upload is gone, an earlier request whose
// answer was lost may have done so.
func (b *Bucket) complete(ctx context.Context, u upload, parts []minio.CompletePart, size int64) error {
	_, err := b.core.CompleteMultipartUpload(ctx, b.address.Bucket, u.Key, u.UploadID, parts, minio.PutObjectOptions{})
	if !hasCode(err, "NoSuchUpload") {
		return err
	}
	info, statErr := b.core.StatObject(ctx, b.address.Bucket, u.Key, minio.StatObjectOptions{})
	if statErr == nil && info.Size == size {
		return nil
	}
	return err
}
