package access

import (
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
	"strings"
	"unique"
)

// MinSecret is the minimum length of a secret in bytes.
const MinSecret = 32

const maxSecret = 1024

// Secret is the digest of a secret. The zero Secret matches nothing.
type Secret struct {
	// A handle, so that a printed Secret, in a log for example, shows a pointer and not
	// the digest.
	digest unique.Handle[[sha256.Size]byte]
}

func secretWith(digest [sha256.Size]byte) Secret { return Secret{unique.Make(digest)} }

// NewSecret accepts a secret of 32 to 1024 visible ASCII characters, which an HTTP header
// can carry.
func NewSecret(text string) (Secret, error) {
	if len(text) < MinSecret {
		return Secret{}, fmt.Errorf("the secret has %d bytes; the minimum is %d", len(text), MinSecret)
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

// IsZero reports whether s is the zero Secret.
func (s Secret) IsZero() bool { return s == Secret{} }

// value is the digest; of the zero Secret, one that no text has.
func (s Secret) value() (digest [sha256.Size]byte) {
	if !s.IsZero() {
		digest = s.digest.Value()
	}
	return digest
}

// is returns 1 if digest is that of s. It compares in constant time.
func (s Secret) is(digest [sha256.Size]byte) int {
	own := s.value()
	return subtle.ConstantTimeCompare(own[:], digest[:]) & bit(!s.IsZero())
}

// LoadSecret reads a secret from a file of one line. If there is no file, it creates one
// with a random secret and mode 0600, completely or not at all. If several processes do
// that at once, one succeeds and all use its secret. The directory must exist.
//
// LoadSecret rejects a file that users other than the owner can write, or that all users
// can read. (A group may read it, as with systemd's credentials.)
func LoadSecret(path string) (s Secret, created bool, err error) {
	lines, created, err := load(path, 1)
	if err == nil {
		s, err = NewSecret(lines[0])
	}
	if err != nil {
		return Secret{}, false, fmt.Errorf("load secret from %q: %w", path, err)
	}
	return s, created, nil
}

// maxSecrets is how many secrets LoadSecrets reads.
const maxSecrets = 16

// LoadSecrets is [LoadSecret] for a file that may have several secrets, one in each line, and returns them in clear: to sign with.
func LoadSecrets(path string) ([]string, error) {
	all, _, err := load(path, maxSecrets)
	for i := range all {
		if err == nil {
			_, err = NewSecret(all[i])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("load secrets from %q: %w", path, err)
	}
	return all, nil
}

// load reads the lines of a file, which it creates if there is none.
func load(path string, most int) (lines []string, created bool, err error) {
	lines, err = readLines(path, most)
	if !errors.Is(err, fs.ErrNotExist) {
		return lines, false, err
	}
	err = createSecret(path)
	created = err == nil
	if created || errors.Is(err, fs.ErrExist) { // another process was faster
		lines, err = readLines(path, most)
	}
	return lines, created, err
}

// ReadSecret reads the one line of a file with a secret or a key. It rejects files as [LoadSecret] does.
func ReadSecret(path string) (string, error) {
	lines, err := readLines(path, 1)
	if err != nil {
		return "", err
	}
	return lines[0], nil
}

// readLines reads at most so many lines, at least one; the last has what follows.
func readLines(path string, most int) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if info.Mode().Perm()&0o027 != 0 {
		return nil, fmt.Errorf("its mode is %04o, but only its owner may access it; run chmod 600", info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(most)*(maxSecret+3)))
	if err != nil {
		return nil, err
	}
	lines := strings.SplitN(strings.TrimSuffix(string(text), "\n"), "\n", most)
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines, nil
}

// makeSecret writes a new secret to a temporary file and links it to path, which
// fails if path exists.
func createSecret(path string) error {
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
