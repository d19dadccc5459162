package ops

import (
	"context"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
)

// CreateKey creates an API key and returns it with its text, which is not stored.
func (a Actions) CreateKey(ctx context.Context, name, scope string) (key access.Key, text string, err error) {
	err = a.perform(ctx, access.Admin, "key_create", func(in *store.Store, _ string) (string, details, error) {
		key, text, err = access.NewKeyStore(in.DB()).CreateKey(ctx, name, scope)
		return key.Prefix, details{"name": name, "scope": scope}, err
	})
	return key, text, err
}

// RevokeKey revokes an API key for ever, and drains the workers that it has registered.
func (a Actions) RevokeKey(ctx context.Context, id store.ID) (access.Key, error) {
	return a.withdrawKey(ctx, "key_revoke", (*access.KeyStore).RevokeKey, id)
}

// DisableKey makes an API key invalid until it is enabled, and drains the workers that it
// has registered.
func (a Actions) DisableKey(ctx context.Context, id store.ID) (access.Key, error) {
	return a.withdrawKey(ctx, "key_disable", (*access.KeyStore).DisableKey, id)
}

// withdrawKey makes a key invalid. Its workers may use it no more, so nothing should be
// claimed for them.
func (a Actions) withdrawKey(
	ctx context.Context, action string,
	withdraw func(*access.KeyStore, context.Context, store.ID) (access.Key, error), id store.ID,
) (key access.Key, err error) {
	err = a.perform(ctx, access.Admin, action, func(in *store.Store, _ string) (string, details, error) {
		if key, err = withdraw(access.NewKeyStore(in.DB()), ctx, id); err != nil {
			return "", nil, err
		}
		d := details{"name": key.Name}
		drained, err := in.DrainRegistered(ctx, key.PrincipalName())
		if len(drained) > 0 {
			d["drained"] = drained
		}
		return key.Prefix, d, err
	})
	return key, err
}

// EnableKey makes a disabled API key valid again.
func (a Actions) EnableKey(ctx context.Context, id store.ID) (key access.Key, err error) {
	err = a.perform(ctx, access.Admin, "key_enable", func(in *store.Store, _ string) (string, details, error) {
		key, err = access.NewKeyStore(in.DB()).EnableKey(ctx, id)
		return key.Prefix, details{"name": key.Name}, err
	})
	return key, err
}
