package ops

import (
	"context"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

// WebhookActions are the actions on webhooks and their deliveries.
type WebhookActions struct {
	Actions Actions
	Hooks   *webhook.Webhooks
}

// Add registers a webhook. The result has its secret.
func (w WebhookActions) Add(ctx context.Context, s webhook.Settings) (h webhook.Webhook, err error) {
	err = w.perform(ctx, "webhook_add", func(in *webhook.Webhooks) (store.ID, details, error) {
		h, err = in.Add(ctx, s)
		return h.ID, details{"url": h.PublicURL(), "types": h.Types, "format": h.Format}, err
	})
	return h, err
}

// Update changes the settings that are not zero.
func (w WebhookActions) Update(ctx context.Context, id store.ID, to webhook.Settings) (h webhook.Webhook, err error) {
	d := details{}
	if to.Types != nil {
		d["types"] = to.Types
	}
	if to.Format != "" {
		d["format"] = to.Format
	}
	if to.Cooldown != nil {
		d["cooldown_s"] = to.Cooldown.Seconds()
	}
	err = w.perform(ctx, "webhook_change", func(in *webhook.Webhooks) (store.ID, details, error) {
		h, err = in.Update(ctx, id, to)
		if to.URL != "" {
			d["url"] = h.PublicURL()
		}
		return id, d, err
	})
	return h, err
}

// RotateSecret replaces the secret, which the result has. For the overlap the old one
// signs as well.
func (w WebhookActions) RotateSecret(
	ctx context.Context, id store.ID, overlap time.Duration,
) (h webhook.Webhook, err error) {
	err = w.perform(ctx, "webhook_rotate", func(in *webhook.Webhooks) (store.ID, details, error) {
		h, err = in.RotateSecret(ctx, id, overlap)
		return id, nil, err
	})
	return h, err
}

// Disable stops the deliveries to a webhook.
func (w WebhookActions) Disable(ctx context.Context, id store.ID, reason string) error {
	return w.perform(ctx, "webhook_disable", func(in *webhook.Webhooks) (store.ID, details, error) {
		return id, nil, in.Disable(ctx, id, reason)
	})
}

// Enable resumes the deliveries to a webhook where they stopped.
func (w WebhookActions) Enable(ctx context.Context, id store.ID) error {
	return w.perform(ctx, "webhook_enable", func(in *webhook.Webhooks) (store.ID, details, error) {
		return id, nil, in.Enable(ctx, id)
	})
}

// Remove deletes a webhook and its deliveries.
func (w WebhookActions) Remove(ctx context.Context, id store.ID) error {
	return w.perform(ctx, "webhook_remove", func(in *webhook.Webhooks) (store.ID, details, error) {
		return id, nil, in.Remove(ctx, id)
	})
}

// Redeliver repeats a delivery.
func (w WebhookActions) Redeliver(ctx context.Context, delivery store.ID) error {
	return w.perform(ctx, "webhook_redeliver", func(in *webhook.Webhooks) (store.ID, details, error) {
		return delivery, nil, in.Redeliver(ctx, delivery)
	})
}

// RedeliverDead repeats all dead deliveries of a webhook, and returns their number.
func (w WebhookActions) RedeliverDead(ctx context.Context, id store.ID) (n int, err error) {
	err = w.perform(ctx, "webhook_redeliver_dead", func(in *webhook.Webhooks) (store.ID, details, error) {
		n, err = in.RedeliverDead(ctx, id)
		return id, nil, err
	})
	return n, err
}

// Test sends a test event. It opens the transaction of the entry afterwards, because the
// receiver may take long to respond.
func (w WebhookActions) Test(ctx context.Context, id store.ID) (webhook.PingResult, error) {
	if _, err := w.Actions.Authorize(ctx, access.Admin); err != nil {
		return webhook.PingResult{}, err
	}
	result, err := w.Hooks.Test(ctx, id)
	if err != nil {
		return result, err
	}
	return result, w.perform(ctx, "webhook_test", func(*webhook.Webhooks) (store.ID, details, error) {
		return id, nil, nil
	})
}

// perform runs an action in a transaction with its entry.
func (w WebhookActions) perform(
	ctx context.Context, action string, do func(in *webhook.Webhooks) (target store.ID, d details, err error),
) error {
	return w.Actions.perform(ctx, access.Admin, action, func(in *store.Store, _ string) (string, details, error) {
		target, d, err := do(w.Hooks.WithStore(in))
		return target.String(), d, err
	})
}
