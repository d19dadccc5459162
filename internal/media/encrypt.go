package media

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Key encrypts segments by the method AES-128 of RFC 8216: each as a whole, in CBC mode, with the padding of PKCS #7.
type Key [aes.BlockSize]byte

// ID names a key in playlists, and does not reveal it.
func (k Key) ID() string {
	sum := sha256.Sum256(slices.Concat([]byte("cuelight key id\n"), k[:]))
	return hex.EncodeToString(sum[:8])
}

// String is the ID: a message that has a key by mistake does not reveal it.
func (k Key) String() string { return k.ID() }

// iv is the initialization vector of a rendition. It is always the same, so that the same segments become the same files again.
func (k Key) iv(rendition string) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(rendition))
	return h.Sum(nil)[:aes.BlockSize]
}

func (k Key) block() cipher.Block {
	block, _ := aes.NewCipher(k[:]) // only another length is an error
	return block
}

func (k Key) encrypt(text, iv []byte) []byte {
	n := aes.BlockSize - len(text)%aes.BlockSize
	padded := slices.Concat(text, bytes.Repeat([]byte{byte(n)}, n))
	cipher.NewCBCEncrypter(k.block(), iv).CryptBlocks(padded, padded)
	return padded
}

// decrypt returns an ErrMismatch if the length or the padding is wrong: of another key, and of most damage of the end.
func (k Key) decrypt(encrypted, iv []byte) ([]byte, error) {
	if len(encrypted) > 0 && len(encrypted)%aes.BlockSize == 0 {
		text := make([]byte, len(encrypted))
		cipher.NewCBCDecrypter(k.block(), iv).CryptBlocks(text, encrypted)
		n := int(text[len(text)-1])
		if n >= 1 && n <= aes.BlockSize && bytes.HasSuffix(text, bytes.Repeat([]byte{byte(n)}, n)) {
			return text[:len(text)-n], nil
		}
	}
	return nil, fmt.Errorf("%w: it cannot be decrypted with the key %s", ErrMismatch, k)
}

// keyTag says how the segments after it are encrypted. The address of the key ends with its ID.
var keyTag = regexp.MustCompile(`(?m)^#EXT-X-KEY:METHOD=AES-128,URI="[^"]*([0-9a-f]{16})",`)

// EncryptionKeyOf returns the ID of the key with which the renditions in dir are encrypted; empty if they are not.
func EncryptionKeyOf(dir string, out *Output) (keyID string, err error) {
	for _, r := range slices.Concat(out.Video, out.Audio) {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(r.Playlist)))
		if err != nil {
			return "", fmt.Errorf("read playlist: %w", err)
		}
		if found := keyTag.FindSubmatch(text); found != nil {
			return string(found[1]), nil
		}
	}
	return "", nil
}

// Encrypt replaces each segment of the renditions in dir by an encrypted one, which it decrypts again, and adds the address of the
// key, which must end with its ID, to the playlists. It replaces files and writes to none, because other directories may have links
// to them. Of renditions that are encrypted already, it only checks the segments.
func (t Tools) Encrypt(ctx context.Context, dir string, out *Output, key Key, address string) error {
	t = t.withStepCounter()
	for _, r := range slices.Concat(out.Video, out.Audio) {
		if err := t.encryptRendition(ctx, dir, r.Playlist, key, address); err != nil {
			return fmt.Errorf("encrypt %s: %w", r.Name, err)
		}
	}
	return nil
}

func (t Tools) encryptRendition(ctx context.Context, dir, playlist string, key Key, address string) error {
	file := filepath.Join(dir, filepath.FromSlash(playlist))
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p, err := parsePlaylist(string(text))
	if err != nil {
		return err
	}
	isEncrypted, iv := keyTag.Match(text), key.iv(path.Dir(playlist))
	for _, s := range p.segments {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.step()
		if err := encryptSegment(filepath.Join(filepath.Dir(file), s.name), key, iv, isEncrypted); err != nil {
			return fmt.Errorf("segment %s: %w", s.name, err)
		}
	}
	if isEncrypted {
		return nil
	}
	// The tag is after EXT-X-MAP. Before it, it would be for the initialization segment, too.
	tag := fmt.Sprintf("#EXT-X-KEY:METHOD=AES-128,URI=\"%s\",IV=0x%x\n", address, iv)
	return writeFile(file, []byte(strings.Replace(string(text), "#EXTINF:", tag+"#EXTINF:", 1)))
}

func encryptSegment(file string, key Key, iv []byte, isEncrypted bool) error {
	text, err := os.ReadFile(file)
	if err == nil && isEncrypted {
		_, err = key.decrypt(text, iv)
	}
	if err != nil || isEncrypted {
		return err
	}
	if err := writeFile(file, key.encrypt(text, iv)); err != nil {
		return err
	}
	encrypted, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	again, err := key.decrypt(encrypted, iv)
	if err == nil && !bytes.Equal(again, text) {
		err = errors.New("the encrypted file has another content than the clear one")
	}
	return err
}

// WriteEncryptedManifests is [Tools.WriteManifests] for encrypted renditions. They have no DASH manifest, because DASH does not know
// the method, and no I-frame playlists, because parts of their segments cannot be decrypted.
func WriteEncryptedManifests(dir string, out *Output) error {
	err := writeChapters(dir, out.Chapters)
	if err == nil {
		err = writeFile(filepath.Join(dir, MasterName), []byte(multivariantPlaylist(out, nil)))
	}
	if err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	return nil
}
