package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
)

// Key describes an API key; the database has its digest and not the key. All pipelines of a
// schema share the keys.
type Key struct {
	ID        ID         `json:"id"`
	Name      string     `json:"name"`
	Scope     string     `json:"scope"`  // read, submit or admin
	Prefix    string     `json:"prefix"` // its first characters, not secret
	CreatedAt time.Time  `json:"created_at"`
	UsedAt    *time.Time `json:"used_at,omitempty"` // to the minute
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
	// Digest is the SHA-256 of the key's whole text.
	Digest [sha256.Size]byte `json:"-"`
}

// ErrInvalidKey says that the name or the scope of a new key is invalid. It matches
// [ErrInvalid].
var ErrInvalidKey error = invalidKey{}

type invalidKey struct{}

func (invalidKey) Error() string        { return "invalid key" }
func (invalidKey) Is(target error) bool { return target == ErrInvalid }

// The scopes of a [Key]. Each includes those before it.
const (
	ScopeRead   = "read"
	ScopeSubmit = "submit"
	ScopeAdmin  = "admin"
)

// A key's text is cue_, its prefix, an underscore, and 256 random bits.
const (
	keyMark      = "cue_"
	keyPrefixLen = 8
	keyLen       = len(keyMark) + keyPrefixLen + 1 + 43
)

// KeyPrefix returns the prefix of an API key, and whether the text has the form of one.
func KeyPrefix(text string) (string, bool) {
	if len(text) != keyLen || !strings.HasPrefix(text, keyMark) {
		return "", false
	}
	prefix, secret := text[len(keyMark):len(keyMark)+keyPrefixLen], text[len(keyMark)+keyPrefixLen:]
	for _, c := range []byte(prefix) {
		if !(c >= 'a' && c <= 'z' || c >= '2' && c <= '7') {
			return "", false
		}
	}
	random, err := base64.RawURLEncoding.Strict().DecodeString(secret[1:])
	if err != nil || len(random) != 32 || secret[0] != '_' {
		return "", false
	}
	return prefix, true
}

// newKey generates a key.
func newKey() (prefix, text string) {
	var random [5 + 32]byte
	rand.Read(random[:]) // never fails
	prefix = strings.ToLower(base32.StdEncoding.EncodeToString(random[:5]))
	return prefix, keyMark + prefix + "_" + base64.RawURLEncoding.EncodeToString(random[5:])
}

const createKeySQL = `
/* create key */
insert into cuelight_keys (name, scope, prefix, digest) values ($1, $2, $3, $4)
    on conflict (prefix) do nothing
returning id, created_at`

// maxKeyName is how long a key's name may be, in bytes.
const maxKeyName = 200

// CreateKey creates an API key and returns its text, which is not stored. The name describes
// the key, need not be unique, and has 1 to 200 bytes of printable characters. It returns
// [ErrInvalidKey].
func (s *Store) CreateKey(ctx context.Context, name, scope string) (k Key, text string, err error) {
	k = Key{Name: name, Scope: scope}
	switch {
	case scope != ScopeRead && scope != ScopeSubmit && scope != ScopeAdmin:
		err = fmt.Errorf("%w: unknown scope %q; allowed: read, submit, admin", ErrInvalidKey, scope)
	case strings.TrimSpace(name) == "" || len(name) > maxKeyName || statement.CleanText(name) != name,
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }): // it is shown on terminals
		err = fmt.Errorf("%w: a name has 1 to %d bytes of printable characters", ErrInvalidKey, maxKeyName)
	}
	if err != nil {
		return Key{}, "", fmt.Errorf("create key: %w", err)
	}
	for {
		k.Prefix, text = newKey()
		k.Digest = sha256.Sum256([]byte(text))
		err := s.db.QueryRow(ctx, createKeySQL, name, scope, k.Prefix, k.Digest[:]).Scan(&k.ID, &k.CreatedAt)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // the prefix exists already: one in 10¹²
		}
		if err != nil {
			return Key{}, "", s.explain("create key", err)
		}
		return k, text, nil
	}
}

const keyColumns = `id, name, scope, prefix, digest, created_at, used_at, revoked_at`

const keysSQL = `
/* list keys */
select ` + keyColumns + ` from cuelight_keys order by id`

// Keys lists all API keys, also revoked ones, the oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	rows, err := s.db.Query(ctx, keysSQL)
	if err != nil {
		return nil, s.explain("list keys", err)
	}
	keys, err := pgx.CollectRows(rows, scanKey)
	return keys, s.explain("list keys", err)
}

const findKeySQL = `
/* find key */
select ` + keyColumns + ` from cuelight_keys where prefix = $1`

// FindKey returns the key with a prefix, also if it was revoked. The caller must compare the
// digest. It returns [ErrNotFound].
func (s *Store) FindKey(ctx context.Context, prefix string) (Key, error) {
	rows, err := s.db.Query(ctx, findKeySQL, prefix)
	if err != nil {
		return Key{}, s.explain("find key", err)
	}
	k, err := pgx.CollectExactlyOneRow(rows, scanKey)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return k, s.explain("find key", err)
}

func scanKey(row pgx.CollectableRow) (k Key, err error) {
	var digest []byte
	err = row.Scan(&k.ID, &k.Name, &k.Scope, &k.Prefix, &digest, &k.CreatedAt, &k.UsedAt, &k.RevokedAt)
	if err == nil && len(digest) != len(k.Digest) {
		err = fmt.Errorf("the digest of key %s has %d bytes", k.ID, len(digest))
	}
	copy(k.Digest[:], digest)
	return k, err
}

const useKeySQL = `
/* use key */
update cuelight_keys set used_at = now()
 where id = (select id from cuelight_keys
              where id = $1 and (used_at is null
                or used_at < now() - interval '1 minute') for no key update skip locked)`

// UseKey records the use of a key, at most once a minute. It skips a key that another
// transaction has locked.
func (s *Store) UseKey(ctx context.Context, key ID) error {
	_, err := s.db.Exec(ctx, useKeySQL, key)
	return s.explain("use key", err)
}

const revokeKeySQL = `
/* revoke key */
update cuelight_keys set revoked_at = coalesce(revoked_at, now()) where id = $1
returning ` + keyColumns

// RevokeKey revokes a key for good, and returns it. Revoking twice changes nothing. It
// returns [ErrNotFound].
func (s *Store) RevokeKey(ctx context.Context, key ID) (Key, error) {
	rows, err := s.db.Query(ctx, revokeKeySQL, key)
	if err != nil {
		return Key{}, s.explain("revoke key", err)
	}
	k, err := pgx.CollectExactlyOneRow(rows, scanKey)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return k, s.explain("revoke key", err)
}
