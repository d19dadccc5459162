package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unique"
)

// MinSecret is how long a secret must be, in bytes.
const MinSecret = 32

const maxSecret = 1024

// Secret is a secret that somebody may show. Only its digest is kept. The zero
// Secret is one that nobody has.
type Secret struct {
	// Behind a handle, so that whoever prints a Secret, in a log for instance, prints
	// where the digest is and not what.
	digest unique.Handle[[sha256.Size]byte]
}

func secretWith(digest [sha256.Size]byte) Secret { return Secret{unique.Make(digest)} }

// NewSecret takes a secret of 32 to 1024 visible ASCII characters: others do not
// go through an HTTP header.
func NewSecret(text string) (Secret, error) {
	if len(text) < MinSecret {
		return Secret{}, fmt.Errorf("the secret has %d bytes; %d is the least", len(text), MinSecret)
	}
	if len(text) > maxSecret {
		return Secret{}, fmt.Errorf("the secret has more than %d bytes", maxSecret)
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return Secret{}, errors.New("the secret has characters other than visible ASCII")
		}
	}
	return secretWith(sha256.Sum256([]byte(text))), nil
}

// IsZero reports whether s is no secret at all.
func (s Secret) IsZero() bool { return s == Secret{} }

// value is the digest; of no secret, one that nothing has.
func (s Secret) value() (digest [sha256.Size]byte) {
	if !s.IsZero() {
		digest = s.digest.Value()
	}
	return digest
}

// is compares in constant time; 1 where digest is that of s.
func (s Secret) is(digest [sha256.Size]byte) int {
	own := s.value()
	return subtle.ConstantTimeCompare(own[:], digest[:]) & bit(!s.IsZero())
}

// LoadSecret reads a secret from a file: one line. Where there is no file it
// draws a secret and makes one with mode 0600, whole or not at all; of several
// processes that do so at once one wins, and all have its secret. The directory
// must be there.
//
// It refuses a file that others than its owner can write, or that everybody can
// read. (A group may read it: so it is with systemd's credentials.)
func LoadSecret(path string) (s Secret, made bool, err error) {
	text, err := readSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeSecret(path); err == nil {
			made = true
		} else if errors.Is(err, fs.ErrExist) {
			err = nil // somebody was faster
		}
		if err == nil {
			text, err = readSecret(path)
		}
	}
	if err == nil {
		s, err = NewSecret(text)
	}
	if err != nil {
		return Secret{}, false, fmt.Errorf("load secret from %q: %w", path, err)
	}
	return s, made, nil
}

func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("this is not a file")
	}
	if info.Mode().Perm()&0o027 != 0 {
		return "", fmt.Errorf("its mode is %04o, and only its owner may read and write it: chmod 600", info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+3))
	if err != nil {
		return "", err
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	return string(bytes.TrimSuffix(text, []byte("\r"))), nil
}

// makeSecret writes a new secret to a file of its own and links it into place,
// which fails where there is one.
func makeSecret(path string) error {
	var random [32]byte
	rand.Read(random[:])                                                      // it never fails
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(random[:]) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
