package access

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
	"github.com/cuelight/cuelight/store"
)

// Key describes an API key; the database has its digest and not the key. All pipelines of a
// schema share the keys.
type Key struct {
	ID     store.ID `json:"id"`
	Name   string   `json:"name"`
	Scope  string   `json:"scope"`  // read, submit, work or admin
	Prefix string   `json:"prefix"` // its first characters, not secret
	// Labels are those that its workers may offer; none: any.
	Labels    []string   `json:"labels,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	UsedAt    *time.Time `json:"used_at,omitempty"` // to the minute
	// DisabledAt is when the key was disabled: it is refused until it is enabled again.
	DisabledAt *time.Time `json:"disabled_at,omitempty"`
	EnabledAt  *time.Time `json:"enabled_at,omitempty"` // the last time that this ended
	RevokedAt  *time.Time `json:"revoked_at,omitempty"` // it is refused for ever
	// Digest is the SHA-256 of the key's whole text.
	Digest [sha256.Size]byte `json:"-"`
}

// ErrInvalidKey says that the name or the scope of a new key is invalid. It matches
// [store.ErrInvalid].
var ErrInvalidKey error = invalidKey{}

type invalidKey struct{}

func (invalidKey) Error() string        { return "invalid key" }
func (invalidKey) Is(target error) bool { return target == store.ErrInvalid }

// KeyStore reads and writes the API keys in a database. It has no state of its own.
type KeyStore struct{ db store.DB }

// NewKeyStore returns the KeyStore of a database, or of a transaction.
func NewKeyStore(db store.DB) *KeyStore { return &KeyStore{db} }

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
insert into cuelight_keys (name, scope, prefix, digest, labels) values ($1, $2, $3, $4, $5)
    on conflict (prefix) do nothing
returning id, created_at`

// maxKeyName is how long a key's name may be, in bytes.
const maxKeyName = 200

// maxKeyLabels is how many labels a key may have.
const maxKeyLabels = 50

// CreateKey creates an API key and returns its text, which is not stored. The name describes
// the key, need not be unique, and has 1 to 200 bytes of printable characters. The labels are those
// that the workers of a key of the scope Work may offer; without any, these may offer all. It returns
// [ErrInvalidKey].
func (k *KeyStore) CreateKey(ctx context.Context, name, scope string, labels ...string) (key Key, text string, err error) {
	key = Key{Name: name, Scope: scope, Labels: labels}
	_, err = ParseScope(scope)
	if err == nil {
		err = checkLabels(scope, labels)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrInvalidKey, err)
	case strings.TrimSpace(name) == "" || len(name) > maxKeyName || statement.CleanText(name) != name,
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }): // it is shown on terminals
		err = fmt.Errorf("%w: a name has 1 to %d bytes of printable characters", ErrInvalidKey, maxKeyName)
	}
	if err != nil {
		return Key{}, "", fmt.Errorf("create key: %w", err)
	}
	for {
		key.Prefix, text = newKey()
		key.Digest = sha256.Sum256([]byte(text))
		err := k.db.QueryRow(ctx, createKeySQL, name, scope, key.Prefix, key.Digest[:], labels).Scan(&key.ID, &key.CreatedAt)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // the prefix exists already: one in 10¹²
		}
		if err != nil {
			return Key{}, "", statement.Wrap(k.db, "create key", err)
		}
		return key, text, nil
	}
}

func checkLabels(scope string, labels []string) error {
	if len(labels) > 0 && scope != Work.String() {
		return fmt.Errorf("only keys of the scope %s have labels", Work)
	}
	if len(labels) > maxKeyLabels {
		return fmt.Errorf("a key has at most %d labels", maxKeyLabels)
	}
	for _, label := range labels {
		if err := store.CheckLabel(label); err != nil {
			return err
		}
	}
	return nil
}

const keyColumns = `id, name, scope, prefix, digest, created_at, used_at, disabled_at, enabled_at, revoked_at, labels`

const keysSQL = `
/* list keys */
select ` + keyColumns + ` from cuelight_keys order by id`

// Keys lists all API keys, also revoked ones, the oldest first.
func (k *KeyStore) Keys(ctx context.Context) ([]Key, error) {
	rows, err := k.db.Query(ctx, keysSQL)
	if err != nil {
		return nil, statement.Wrap(k.db, "list keys", err)
	}
	keys, err := pgx.CollectRows(rows, scanKey)
	return keys, statement.Wrap(k.db, "list keys", err)
}

const findKeySQL = `
/* find key */
select ` + keyColumns + ` from cuelight_keys where prefix = $1`

// FindKey returns the key with a prefix, also if it was revoked. The caller must compare the
// digest. It returns [store.ErrNotFound].
func (k *KeyStore) FindKey(ctx context.Context, prefix string) (Key, error) {
	rows, err := k.db.Query(ctx, findKeySQL, prefix)
	if err != nil {
		return Key{}, statement.Wrap(k.db, "find key", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanKey)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNotFound
	}
	return found, statement.Wrap(k.db, "find key", err)
}

const lockKeySQL = `
/* lock key */
select ` + keyColumns + ` from cuelight_keys where prefix = $1 for no key update`

// LockKey returns the key of a principal, see [Key.PrincipalName], and locks its row until the
// end of the transaction. It returns [store.ErrNotFound] if the principal is not that of a key.
func (k *KeyStore) LockKey(ctx context.Context, principal string) (Key, error) {
	rest, _ := strings.CutPrefix(principal, keyNamePrefix)
	prefix, _, _ := strings.Cut(rest, " ")
	key, err := k.change(ctx, "lock key", lockKeySQL, prefix)
	if err == nil && key.PrincipalName() != principal {
		err = fmt.Errorf("lock key: %w", store.ErrNotFound)
	}
	return key, err
}

func scanKey(row pgx.CollectableRow) (k Key, err error) {
	var digest []byte
	err = row.Scan(&k.ID, &k.Name, &k.Scope, &k.Prefix, &digest, &k.CreatedAt, &k.UsedAt, &k.DisabledAt, &k.EnabledAt, &k.RevokedAt,
		&k.Labels)
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
func (k *KeyStore) UseKey(ctx context.Context, key store.ID) error {
	_, err := k.db.Exec(ctx, useKeySQL, key)
	return statement.Wrap(k.db, "use key", err)
}

// PrincipalName is the name of the key's principal, such as "key k3j9x2mq (build server)".
func (k Key) PrincipalName() string {
	// Names are shown on terminals, and older versions accepted unprintable characters.
	name := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, k.Name)
	return fmt.Sprintf("%s%s (%s)", keyNamePrefix, k.Prefix, name)
}

const revokeKeySQL = `
/* revoke key */
update cuelight_keys set revoked_at = coalesce(revoked_at, now()) where id = $1
returning ` + keyColumns

// RevokeKey revokes a key for good, and returns it. Revoking twice changes nothing. It
// returns [store.ErrNotFound].
func (k *KeyStore) RevokeKey(ctx context.Context, key store.ID) (Key, error) {
	return k.change(ctx, "revoke key", revokeKeySQL, key)
}

// A revoked key stays as it is.
const disableKeySQL = `
/* disable key */
update cuelight_keys set disabled_at = case when revoked_at is null then coalesce(disabled_at, now()) else disabled_at end
 where id = $1
returning ` + keyColumns

// DisableKey makes a key invalid until [KeyStore.EnableKey], and returns it. Disabling twice
// changes nothing. It returns [store.ErrNotFound], and [ErrInvalidKey] for a revoked key.
func (k *KeyStore) DisableKey(ctx context.Context, key store.ID) (Key, error) {
	return k.changeUnrevoked(ctx, "disable key", disableKeySQL, key)
}

const enableKeySQL = `
/* enable key */
update cuelight_keys set disabled_at = case when revoked_at is not null then disabled_at end,
       enabled_at = case when revoked_at is null and disabled_at is not null then now() else enabled_at end
 where id = $1
returning ` + keyColumns

// EnableKey makes a disabled key valid again, and returns it. Enabling twice changes
// nothing. It returns [store.ErrNotFound], and [ErrInvalidKey] for a revoked key.
func (k *KeyStore) EnableKey(ctx context.Context, key store.ID) (Key, error) {
	return k.changeUnrevoked(ctx, "enable key", enableKeySQL, key)
}

func (k *KeyStore) changeUnrevoked(ctx context.Context, act, sql string, key store.ID) (Key, error) {
	changed, err := k.change(ctx, act, sql, key)
	if err == nil && changed.RevokedAt != nil {
		return Key{}, fmt.Errorf("%s: %w: it is revoked for ever; create another", act, ErrInvalidKey)
	}
	return changed, err
}

// change runs a statement that changes or locks a key, by its id or prefix, and returns it.
func (k *KeyStore) change(ctx context.Context, act, sql string, key any) (Key, error) {
	rows, err := k.db.Query(ctx, sql, key)
	if err != nil {
		return Key{}, statement.Wrap(k.db, act, err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanKey)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNotFound
	}
	return found, statement.Wrap(k.db, act, err)
}
