package storage

import (
	"context"
	"path"
	"time"
)

// PresignFile returns an address at which GET returns a file of an artifact for the given time, also
// by ranges, and nothing else. The credentials end it earlier if they expire. It does not check that
// the file exists.
func (b *Bucket) PresignFile(ctx context.Context, name, file string, life time.Duration) (string, error) {
	if err := checkName(path.Join(name, file)); err != nil {
		return "", err
	}
	u, err := b.core.PresignedGetObject(ctx, b.address.Bucket, b.key(name, file), life, nil)
	if err != nil {
		return "", b.wrap(ctx, err, "presign", name)
	}
	return u.String(), nil
}
