package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// CreateKey creates an API key and returns it with its text, which is not stored.
func (a Actions) CreateKey(ctx context.Context, name, scope string, labels ...string) (key access.Key, text string, err error) {
	err = a.perform(ctx, access.Admin, "key_create", func(in *store.Store, _ string) (string, details, error) {
		key, text, err = access.NewKeyStore(in.DB()).CreateKey(ctx, name, scope, labels...)
		detail := details{"name": name, "scope": scope}
		if len(labels) > 0 {
			detail["labels"] = labels
		}
		return key.Prefix, detail, err
	})
	return key, text, err
}

// RevokeKey revokes an API key for ever, and stops the workers that have registered with it: their
// claims are released.
func (a Actions) RevokeKey(ctx context.Context, id store.ID) (access.Key, error) {
	return a.withdrawKey(ctx, "key_revoke", revoke, id)
}

// DisableKey makes an API key invalid until it is enabled, and stops workers as RevokeKey does.
func (a Actions) DisableKey(ctx context.Context, id store.ID) (access.Key, error) {
	return a.withdrawKey(ctx, "key_disable", disable, id)
}

// maxRefusals is how many refused results of its workers disable a key.
const maxRefusals = 3

// DisableRefusedKey disables the key of a principal, as DisableKey does, if three results of its
// workers were refused since it was created or last enabled. The reason is that of the last one.
// It sends an alert. It returns whether it has disabled the key: not if that was done before,
// nor for a principal without a key.
func (a Actions) DisableRefusedKey(ctx context.Context, principal, reason string) (key access.Key, disabled bool, err error) {
	err = a.perform(ctx, access.Admin, "key_disable", func(in *store.Store, _ string) (string, details, error) {
		keys := access.NewKeyStore(in.DB())
		key, err = keys.LockKey(ctx, principal)
		if errors.Is(err, store.ErrNotFound) || err == nil && (key.DisabledAt != nil || key.RevokedAt != nil) {
			return "", nil, errNothingDone
		}
		since := key.CreatedAt
		if key.EnabledAt != nil {
			since = *key.EnabledAt
		}
		refused := 0
		if err == nil {
			refused, err = countRefused(ctx, in, principal, since, maxRefusals)
		}
		if err == nil && refused < maxRefusals {
			err = errNothingDone
		}
		if err != nil {
			return "", nil, err
		}
		_, d, err := withdraw(ctx, in, key.ID, disable)
		if err != nil {
			return "", nil, err
		}
		d["reason"] = fmt.Sprintf("%d results of its workers were refused, the last one because: %s", refused, reason)
		disabled = true
		hooks := webhook.New(webhook.Options{DB: in.DB(), Store: in, Graph: in.Graph()})
		return key.Prefix, d, hooks.Raise(ctx, webhook.AlertWorkerDisabled,
			map[string]any{"key": key.Prefix, "name": key.Name, "reason": reason})
	})
	return key, disabled && err == nil, err
}

// withdrawal is a way to make a key invalid.
type withdrawal struct {
	change func(*access.KeyStore, context.Context, store.ID) (access.Key, error)
	why    string // in the history, of the claims that it releases
}

var (
	disable = withdrawal{(*access.KeyStore).DisableKey, "the key of the worker was disabled"}
	revoke  = withdrawal{(*access.KeyStore).RevokeKey, "the key of the worker was revoked"}
)

// withdrawKey makes a key invalid.
func (a Actions) withdrawKey(ctx context.Context, action string, how withdrawal, id store.ID) (key access.Key, err error) {
	err = a.perform(ctx, access.Admin, action, func(in *store.Store, _ string) (target string, d details, err error) {
		key, d, err = withdraw(ctx, in, id, how)
		return key.Prefix, d, err
	})
	return key, err
}

// withdraw makes a key invalid. Nothing more of its workers is accepted, so others take their claims
// at once. That is not the tasks' fault, and counts for no attempt.
func withdraw(ctx context.Context, in *store.Store, id store.ID, how withdrawal) (access.Key, details, error) {
	key, err := how.change(access.NewKeyStore(in.DB()), ctx, id)
	if err != nil {
		return key, nil, err
	}
	d := details{"name": key.Name}
	stopped, released, err := engine.New(in.DB(), in.Graph()).StopRegistered(ctx, key.PrincipalName(), how.why)
	if len(stopped) > 0 {
		d["stopped"], d["released"] = stopped, released
	}
	return key, d, err
}

// EnableKey makes a disabled API key valid again.
func (a Actions) EnableKey(ctx context.Context, id store.ID) (key access.Key, err error) {
	err = a.perform(ctx, access.Admin, "key_enable", func(in *store.Store, _ string) (string, details, error) {
		key, err = access.NewKeyStore(in.DB()).EnableKey(ctx, id)
		return key.Prefix, details{"name": key.Name}, err
	})
	return key, err
}

const countRefusedSQL = `
/* count refused results */
select count(*) from (
  select from {attempts} a
    join {workers} w on w.id = a.worker_id and w.principal = $1
   where a.error_class = 'refused' and a.finished_at > $2
   limit $3) as refused`

// countRefused counts attempts, up to limit, of the workers that a principal has registered,
// whose results were refused after a time.
func countRefused(ctx context.Context, in *store.Store, principal string, after time.Time, limit int) (n int, err error) {
	err = in.DB().QueryRow(ctx, in.Graph().SQL(countRefusedSQL), principal, after, limit).Scan(&n)
	return n, statement.Wrap(in.DB(), "count refused results", err)
}
