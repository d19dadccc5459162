package playback

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cuelight/cuelight/store"
)

// EncryptionKeys returns a function that derives the keys of a video from a file with secrets, as that of [LoadKeys]: the first is for
// new versions. It reads the file each time, and creates it with its directory if there is none.
//
// Keys are derived and not stored, so all hosts with the file have the same ones, and a video keeps its key when its task is gone.
func EncryptionKeys(file string) func(task store.ID) ([][16]byte, error) {
	return func(task store.ID) (keys [][16]byte, err error) {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, fmt.Errorf("create directory of secrets: %w", err)
		}
		loaded, err := LoadKeys(file)
		for _, secret := range loaded.secrets {
			key, err := hkdf.Key(sha256.New, []byte(secret), nil, "cuelight encryption\n"+task.String(), 16)
			if err != nil {
				return nil, fmt.Errorf("derive encryption key: %w", err)
			}
			keys = append(keys, [16]byte(key))
		}
		return keys, err
	}
}
