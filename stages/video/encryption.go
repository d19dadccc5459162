package video

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// EncryptionAES128 is the value of Settings.Encryption for the method AES-128 of HLS.
const EncryptionAES128 = "aes-128"

// EncryptionKeyPath is where playlists of a published video refer to a key by its ID, without Config.EncryptionKeyURL. There is no
// such file; the web server answers.
const EncryptionKeyPath = "key/"

// FindEncryptionKey returns the key of a task with an ID, or [store.ErrNotFound].
func (c Config) FindEncryptionKey(task store.ID, keyID string) (key [16]byte, err error) {
	keys, err := c.encryptionKeys(task)
	for _, key := range keys {
		if media.Key(key).ID() == keyID {
			return key, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("encryption key %s: %w; add its line to the file of --encryption-keys again, and retry", keyID, store.ErrNotFound)
	}
	return key, err
}

func (c Config) encryptionKeys(task store.ID) ([][16]byte, error) {
	if c.EncryptionKeys == nil {
		return nil, errors.New("this process has no keys for encryption; name the same file on all hosts with --encryption-keys, and retry")
	}
	return c.EncryptionKeys(task)
}

// checkRenditions checks the renditions in dir. Encrypted ones passed the check when they were encrypted.
func (c Config) checkRenditions(ctx context.Context, job *stages.Job, in Ingest, dir string, out *media.Output) error {
	var key media.Key
	tools := c.tools(job, -1, "checking")
	keyID, err := media.EncryptionKeyOf(dir, out)
	if err == nil && keyID == "" {
		return tools.Check(ctx, in.Info, dir, out)
	}
	if err == nil {
		key, err = c.FindEncryptionKey(job.Task, keyID)
	}
	if err != nil {
		return err
	}
	return tools.Encrypt(ctx, dir, out, key, "") // which only checks them
}

// writeManifests writes what players open. Before, it encrypts the renditions if the settings ask for that, unless they are encrypted:
// as those of a published video are of which nothing else is left.
func (c Config) writeManifests(ctx context.Context, job *stages.Job, in Ingest, dir string, out *media.Output) (keyID string, err error) {
	if in.Settings.Encryption == "" {
		return "", c.tools(job, -1, "manifest").WriteManifests(ctx, dir, out)
	}
	keyID, err = media.EncryptionKeyOf(dir, out)
	if err == nil && keyID == "" {
		keyID, err = c.encrypt(ctx, job, dir, out)
	}
	if err != nil {
		return "", err
	}
	return keyID, media.WriteEncryptedManifests(dir, out)
}

func (c Config) encrypt(ctx context.Context, job *stages.Job, dir string, out *media.Output) (keyID string, err error) {
	keys, err := c.encryptionKeys(job.Task)
	if err == nil {
		err = diskspace.Check(dir, out.Bytes, c.reserve())
	}
	if err != nil {
		return "", err
	}
	key := media.Key(keys[0])
	address := "../../" + EncryptionKeyPath + key.ID() // from the directory of a rendition, in that of a generation
	if c.EncryptionKeyURL != "" {
		address = strings.ReplaceAll(c.EncryptionKeyURL, "{id}", job.Task.String()) + "?key=" + key.ID()
	}
	return key.ID(), c.tools(job, -1, "encrypting").Encrypt(ctx, dir, out, key, address)
}
