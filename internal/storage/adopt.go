package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// AdoptArtifact makes an artifact exist whose files another program has copied to the service from the
// directory dir. It reads the files for their hashes, and compares the objects with them by name and size.
// It returns ErrCorrupt, and writes nothing, if an object is missing or has another size; fs.ErrExist if the artifact exists
// with other files.
func (b *Bucket) AdoptArtifact(ctx context.Context, name, dir string) error {
	m := Manifest{}
	err := checkName(name)
	if err == nil {
		m.Files, err = ListFiles(dir)
	}
	if err == nil {
		err = b.adoptArtifact(ctx, &put{b: b, name: name, dir: dir, dry: true}, m)
	}
	return b.wrap(ctx, err, "adopt artifact", name)
}

func (b *Bucket) adoptArtifact(ctx context.Context, p *put, m Manifest) error {
	if err := b.verifySizes(ctx, p.name, m.Files); err != nil {
		return err
	}
	if err := p.files(ctx, m.Files); err != nil {
		return err
	}
	return b.writeManifest(ctx, p.name, m)
}

// CheckFiles returns ErrCorrupt unless the service has all files of an artifact in their sizes. The artifact need not exist.
func (b *Bucket) CheckFiles(ctx context.Context, name string, files []File) error {
	err := checkName(name)
	if err == nil {
		err = b.verifySizes(ctx, name, files)
	}
	return b.wrap(ctx, err, "check artifact", name)
}

// RemoveManifest removes the list of files that a program which copies all objects brings into a directory.
func RemoveManifest(dir string) error {
	if err := os.Remove(filepath.Join(dir, manifestName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
