package video

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cuelight/cuelight/internal/storage"
)

// IDFile has the random id of a location. Hosts may know a location by different names; its id is the same.
const IDFile = ".cuelight-id"

// ID returns the id of a location; it is empty if no worker has used the location yet.
func (p Location) ID(ctx context.Context) (string, error) {
	content, _, err := p.readFile(ctx, IDFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	id := strings.TrimSpace(string(content))
	if err == nil && id == "" {
		err = fmt.Errorf("%s is empty; delete it", IDFile)
	}
	return id, err
}

// CreateID returns the id of a location. If it has none, it gets one.
func (p Location) CreateID(ctx context.Context) (string, error) {
	for {
		id, err := p.ID(ctx)
		if err != nil || id != "" {
			return id, err
		}
		err = p.writeID(ctx, rand.Text()+"\n")
		// Another process may have created it.
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, storage.ErrConflict) {
			return "", err
		}
	}
}

// ReplaceID gives a location a new id, also if it has that of the location that it was copied from.
func (p Location) ReplaceID(ctx context.Context) (string, error) {
	id := rand.Text()
	if p.Bucket == nil {
		temporary := filepath.Join(p.Dir, IDFile+".tmp")
		if err := os.WriteFile(temporary, []byte(id+"\n"), 0o644); err != nil {
			return "", err
		}
		if err := errors.Join(syncFile(temporary), os.Rename(temporary, filepath.Join(p.Dir, IDFile))); err != nil {
			return "", err
		}
		return id, syncFile(p.Dir)
	}
	_, version, err := p.readFile(ctx, IDFile)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		_, err = p.Bucket.storage.WriteDocument(ctx, IDFile, []byte(id+"\n"), version)
	}
	return id, err
}

func (p Location) writeID(ctx context.Context, id string) error {
	if p.Bucket != nil {
		_, err := p.Bucket.storage.WriteDocument(ctx, IDFile, []byte(id), "")
		return err
	}
	// The link appears with its content, and only one of several processes creates it.
	file := filepath.Join(p.Dir, IDFile)
	temporary := fmt.Sprintf("%s.%s.tmp", file, rand.Text())
	if err := os.WriteFile(temporary, []byte(id), 0o644); err != nil {
		return err
	}
	defer os.Remove(temporary)
	return os.Link(temporary, file)
}
