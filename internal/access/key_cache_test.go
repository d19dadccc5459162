package access_test

import (
	"context"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

// countedKeys counts the keys that are read.
type countedKeys struct {
	*access.KeyStore
	reads int
}

func (c *countedKeys) FindKey(ctx context.Context, prefix string) (access.Key, error) {
	c.reads++
	return c.KeyStore.FindKey(ctx, prefix)
}

func TestKeyCache_ReadsAKeyOfAWorkerOnceUntilItIsRefused(t *testing.T) {
	t.Parallel()
	b := newKeyFixture(t)
	channel := store.Video().ControlChannel()
	wakes := notify.NewWakes()
	listener := notify.New(b.pool, notify.Options{Channels: []string{channel}, AlsoWake: []*notify.Wakes{wakes}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- listener.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	waittest.Until(t, "the listener is connected", listener.Connected)
	counted := &countedKeys{KeyStore: b.KeyStore}
	listening := true
	cache := &access.KeyCache{Store: counted, Wakes: wakes, Channel: channel, IsListening: func() bool { return listening }}
	work, _, err := b.CreateKey(t.Context(), "worker", access.Work.String())
	if err != nil {
		t.Fatal(err)
	}
	admin, _, err := b.CreateKey(t.Context(), "ann", access.Admin.String())
	if err != nil {
		t.Fatal(err)
	}
	find := func(prefix string) access.Key {
		t.Helper()
		k, err := cache.FindKey(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	reads := func(want int, prefixes ...string) {
		t.Helper()
		counted.reads = 0
		for _, prefix := range prefixes {
			find(prefix)
		}
		if counted.reads != want {
			t.Errorf("%d keys were read, want %d", counted.reads, want)
		}
	}
	find(work.Prefix) // what the listener announced when it connected is over
	find(work.Prefix)
	reads(0, work.Prefix, work.Prefix)
	reads(2, admin.Prefix, admin.Prefix)
	if err := cache.UseKey(t.Context(), work.ID); err != nil || find(work.Prefix).UsedAt == nil {
		t.Errorf("the use of the key is not remembered: %v", err)
	}
	wakes.Add("cuelight_video_ingest") // of a stage
	reads(0, work.Prefix)
	listening = false
	reads(2, work.Prefix, work.Prefix)
	listening = true
	find(work.Prefix)
	for _, sql := range []string{
		`update cuelight_keys set disabled_at = now() where id = $1`,
		`update cuelight_keys set disabled_at = null where id = $1`,
		`update cuelight_keys set revoked_at = now() where id = $1`,
	} {
		if _, err := b.pool.Exec(t.Context(), sql, work.ID); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the key is read again", func() bool {
			counted.reads = 0
			find(work.Prefix)
			return counted.reads == 1
		})
	}
	reads(2, work.Prefix, work.Prefix) // a revoked key is not remembered
}

// lateKeys answers the first request for a key with what it was before its revocation, when answer is
// closed: the answer of the database arrives late.
type lateKeys struct {
	*access.KeyStore
	prefix        string
	asked, answer chan struct{}
	revoked       bool
}

func (l *lateKeys) FindKey(_ context.Context, prefix string) (access.Key, error) {
	key := access.Key{Prefix: prefix, Scope: access.Work.String()}
	if l.revoked {
		now := time.Now()
		key.RevokedAt = &now
	} else if prefix == l.prefix {
		close(l.asked)
		<-l.answer
	}
	return key, nil
}

func TestKeyCache_DoesNotRememberAKeyRevokedDuringItsReadIfAnotherRequestTookTheNotification(t *testing.T) {
	t.Parallel()
	channel, wakes := store.Video().ControlChannel(), notify.NewWakes()
	keys := &lateKeys{prefix: "aaaaaaaa", asked: make(chan struct{}), answer: make(chan struct{})}
	cache := &access.KeyCache{Store: keys, Wakes: wakes, Channel: channel, IsListening: func() bool { return true }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if key, err := cache.FindKey(t.Context(), "aaaaaaaa"); err != nil || key.RevokedAt != nil {
			t.Errorf("the late answer is %+v, %v", key, err)
		}
	}()
	<-keys.asked
	keys.revoked = true
	wakes.Add(channel)
	if _, err := cache.FindKey(t.Context(), "bbbbbbbb"); err != nil {
		t.Error(err)
	}
	close(keys.answer)
	<-done
	if key, err := cache.FindKey(t.Context(), "aaaaaaaa"); err != nil || key.RevokedAt == nil {
		t.Errorf("the revoked key is still valid: %+v, %v", key, err)
	}
}
