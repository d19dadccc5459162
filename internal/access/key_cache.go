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

	mu         sync.Mutex // guards the rest
	known      map[string]knownKey
	generation int64 // how often the keys were forgotten
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
	key, generation, ok := c.find(prefix)
	if ok {
		return key, nil
	}
	key, err := c.Store.FindKey(ctx, prefix)
	if err == nil && scopeOf(key) == Work {
		c.remember(key, generation)
	}
	return key, err
}

// find returns a key that is remembered, and the generation in which it was looked for.
func (c *KeyCache) find(prefix string) (_ Key, generation int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetChanged()
	k, ok := c.known[prefix]
	return k.key, c.generation, ok && time.Since(k.read) < maxKeyAge && c.IsListening()
}

// remember remembers a key, unless a notification arrived since the generation in which its read began:
// it may be of this key, and another request may have taken it.
func (c *KeyCache) remember(key Key, generation int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetChanged()
	if c.generation != generation || !c.IsListening() {
		return
	}
	if c.known == nil {
		c.known = make(map[string]knownKey)
	}
	c.known[key.Prefix] = knownKey{key, time.Now()}
}

// forgetChanged forgets all keys if there was a notification. The lock is held.
func (c *KeyCache) forgetChanged() {
	if slices.ContainsFunc(c.Wakes.Take(), func(w notify.Wake) bool { return w.Channel == c.Channel }) {
		clear(c.known)
		c.generation++
	}
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
