// Package playback says how published videos are watched, see [Addresses.Find], and signs their addresses: who has one can watch until
// it expires, without an account. It also derives the keys of encrypted videos, see [EncryptionKeys].
//
//	keys, err := playback.LoadKeys("/var/lib/cuelight/secrets/playback")
//	token := keys.Sign(task, time.Now().Add(24*time.Hour))
//	expires, err := keys.Verify(task, token, time.Now())
//
// The token is a part of the path, before the names of the files, because players drop the queries of the addresses that playlists
// have relative to their own. One token is for all files of a video, and the same for all viewers of an hour, so that proxies can
// cache them. It cannot be revoked, except by removing its key.
package playback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
)

// MaxAge is the longest time for which an address is signed.
const MaxAge = 366 * 24 * time.Hour

// ErrInvalid means that a token is not one of the task's, and ErrExpired that it was.
var (
	ErrInvalid = errors.New("the address is not valid")
	ErrExpired = errors.New("the address has expired")
)

// Keys sign and verify. The first one signs; all verify. It is not changed after its creation.
type Keys struct{ secrets []string }

// LoadKeys reads a file with a key in each line, of at least 32 characters. If there is none, it creates one with a random key.
func LoadKeys(path string) (Keys, error) {
	lines, err := access.LoadSecrets(path)
	return Keys{lines}, err
}

// Expiry is when an address ends that is to be valid for a time from now on: the next full minute after that, or hour if it is a day
// or more, so that many viewers have the same address.
func Expiry(now time.Time, valid time.Duration) time.Time {
	unit := time.Minute
	if valid >= 24*time.Hour {
		unit = time.Hour
	}
	return now.Add(valid + unit - 1).Truncate(unit)
}

// Sign returns the token for a task until a time, in whole seconds.
func (k Keys) Sign(task store.ID, expires time.Time) string {
	at := strconv.FormatInt(expires.Unix(), 36)
	return at + "-" + signature(k.secrets[0], task, at)
}

// Verify returns when a token expires, or ErrInvalid or ErrExpired.
func (k Keys) Verify(task store.ID, token string, now time.Time) (expires time.Time, err error) {
	at, sent, _ := strings.Cut(token, "-")
	for _, secret := range k.secrets {
		if !hmac.Equal([]byte(sent), []byte(signature(secret, task, at))) {
			continue
		}
		seconds, err := strconv.ParseInt(at, 36, 64)
		if err != nil {
			return time.Time{}, ErrInvalid
		}
		if expires = time.Unix(seconds, 0); !now.Before(expires) {
			return expires, ErrExpired
		}
		return expires, nil
	}
	return time.Time{}, ErrInvalid
}

// signature is 128 bits of an HMAC.
func signature(secret string, task store.ID, at string) string {
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "cuelight playback\n%s\n%s", task, at)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}
