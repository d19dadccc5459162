package storage

import (
	"context"
	"errors"
)

// content identifies what is in a file.
type content struct {
	size   int64
	sha256 string
}

// findSimilar finds the files that the service can copy.
func (p *put) findSimilar(ctx context.Context, similar []ArtifactRef) error {
	p.similar = make(map[content]sourceObject)
	for _, ref := range similar {
		if ref.Bucket.address.Endpoint != p.b.address.Endpoint {
			continue
		}
		m, err := ref.Bucket.readManifest(ctx, ref.Name)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return err
		}
		objects, err := ref.Bucket.objects(ctx, ref.Name)
		if err != nil {
			return err
		}
		for _, f := range m.Files {
			if o, ok := objects[ref.Bucket.key(ref.Name, f.Name)]; ok && o.Size == f.Size && f.Size > 0 {
				p.similar[content{f.Size, f.SHA256}] = sourceObject{ref.Bucket, o}
			}
		}
	}
	return nil
}

// isSimilarSize reports whether a file of this size may have been found. If so, its hash must be
// known before it is uploaded.
func (p *put) isSimilarSize(size int64) bool {
	for c := range p.similar {
		if c.size == size {
			return true
		}
	}
	return false
}

// copySimilar lets the service copy a file whose hash is known. It reports false if the file must be
// uploaded.
func (p *put) copySimilar(ctx context.Context, f *File, key string) (copied bool, err error) {
	source, ok := p.similar[content{f.Size, f.SHA256}]
	if !ok {
		return false, nil
	}
	err = p.b.copyFile(ctx, *f, source, key, &p.counter)
	if isMissing(err) || errors.Is(err, ErrCorrupt) || hasCode(err, "AccessDenied") {
		return false, nil // it was deleted, or may not be read
	}
	return err == nil, err
}
