package access

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

// KeyCache remembers valid keys of the scope Work, so that requests of thousands of waiting workers
// need no query each. It forgets all keys when Wakes has a notification: the database sends one when a
// key is disabled, revoked or deleted.
type KeyCache struct {
	Store Keys
	// Wakes gets the notifications of Channel, the control channel of a pipeline.
	Wakes   *notify.Wakes
	Channel string
	// IsListening reports whether notifications arrive. While they do not, every key is read.
	IsListening func() bool

	mu    sync.Mutex // guards known
	known map[string]knownKey
}

type knownKey struct {
	key  Key
	read time.Time
}

// maxKeyAge is how long a key is remembered at most: also if its notification was lost, with a
// connection that looks open or because the server's queue of notifications was full.
const maxKeyAge = time.Minute

// FindKey returns a key with a prefix; see [KeyStore.FindKey].
func (c *KeyCache) FindKey(ctx context.Context, prefix string) (Key, error) {
	if key, ok := c.find(prefix); ok {
		return key, nil
	}
	key, err := c.Store.FindKey(ctx, prefix)
	if err == nil && scopeOf(key) == Work {
		c.remember(key)
	}
	return key, err
}

func (c *KeyCache) find(prefix string) (Key, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetChanged()
	k, ok := c.known[prefix]
	return k.key, ok && time.Since(k.read) < maxKeyAge && c.IsListening()
}

// remember remembers a key, unless a notification arrived while it was read: it may be of this key.
func (c *KeyCache) remember(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgetChanged() || !c.IsListening() {
		return
	}
	if c.known == nil {
		c.known = make(map[string]knownKey)
	}
	c.known[key.Prefix] = knownKey{key, time.Now()}
}

// forgetChanged forgets all keys if there was a notification. The lock is held.
func (c *KeyCache) forgetChanged() bool {
	changed := slices.Contains(c.Wakes.Take(), c.Channel)
	if changed {
		clear(c.known)
	}
	return changed
}

// Keys lists all keys; see [KeyStore.Keys].
func (c *KeyCache) Keys(ctx context.Context) ([]Key, error) { return c.Store.Keys(ctx) }

// UseKey records that a key was used.
func (c *KeyCache) UseKey(ctx context.Context, id store.ID) error {
	err := c.Store.UseKey(ctx, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	for prefix, k := range c.known {
		if k.key.ID == id {
			now := time.Now()
			k.key.UsedAt = &now
			c.known[prefix] = k
		}
	}
	return err
}
