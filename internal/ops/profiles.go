package ops

import (
	"context"
	"encoding/json"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/store"
)

// SetProfile creates or replaces a profile.
func (a Actions) SetProfile(ctx context.Context, name string, definition json.RawMessage) (p profiles.Profile, err error) {
	err = a.perform(ctx, access.Admin, "profile_set", func(in *store.Store, actor string) (string, details, error) {
		p, err = profiles.New(in).Set(ctx, name, definition, actor)
		return name, details{"definition": p.Definition}, err
	})
	return p, err
}

// RemoveProfile deletes a profile.
func (a Actions) RemoveProfile(ctx context.Context, name string) error {
	return a.perform(ctx, access.Admin, "profile_remove", func(in *store.Store, _ string) (string, details, error) {
		return name, nil, profiles.New(in).Remove(ctx, name)
	})
}
