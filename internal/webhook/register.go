package webhook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// Webhook is a registered receiver.
type Webhook struct {
	ID  store.ID `json:"id"`
	URL string   `json:"url"`
	// Format is the format of the bodies; see [Formats].
	Format string `json:"format"`
	// Types are the requested types; see [Types]. An empty list means every event
	// except progress and alerts.
	Types []string `json:"types"`
	// Secret is the key of the signatures. Only [Webhooks.Add] and
	// [Webhooks.RotateSecret] return all of it; other methods return its beginning.
	Secret string `json:"secret"`
	// OldSecretUntil is when the previous secret ceases to sign.
	OldSecretUntil *time.Time `json:"old_secret_until,omitempty"`
	// Cooldown is the alert cooldown in seconds.
	Cooldown       int        `json:"cooldown_s"`
	CreatedAt      time.Time  `json:"created_at"`
	DisabledAt     *time.Time `json:"disabled_at,omitempty"`
	DisabledReason string     `json:"disabled_reason,omitempty"`
	// Pending and Dead are numbers of deliveries, counted up to 100,000.
	Pending int `json:"pending"`
	Dead    int `json:"dead"`
}

// Settings are what an operator sets of a webhook. [Webhooks.Update] leaves zero fields
// unchanged.
type Settings struct {
	URL   string
	Types []string // see [Types]; an empty list is every event except progress and alerts
	// Format is one of [Formats]. Default [FormatCuelight]. A new webhook of another format that has no Types gets
	// all alerts.
	Format string
	// Cooldown is the alert cooldown in whole seconds; 0 for none. Default 300 s.
	Cooldown *time.Duration
}

// cooldownSeconds returns the cooldown in whole seconds, or nil.
func (s Settings) cooldownSeconds() *float64 {
	if s.Cooldown == nil {
		return nil
	}
	return new(max(s.Cooldown.Truncate(time.Second).Seconds(), 0))
}

const webhookColumns = `
id, url, types, format, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_reason,
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' limit 100000) as pending),
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'dead' limit 100000) as dead)`

func scanWebhook(row pgx.CollectableRow) (h Webhook, err error) {
	err = row.Scan(&h.ID, &h.URL, &h.Types, &h.Format, &h.Secret, &h.OldSecretUntil, &h.Cooldown,
		&h.CreatedAt, &h.DisabledAt, &h.DisabledReason, &h.Pending, &h.Dead)
	return h, err
}

const addSQL = `
/* add webhook */
insert into cuelight_webhooks as w (pipeline, url, types, secret, cooldown, cursor, format)
values ($1, $2, $3, $4, coalesce(make_interval(secs => $5), '300 s'), $6, $7)
returning ` + webhookColumns

// Add registers a receiver of future events. The secret is not shown again.
func (w *Webhooks) Add(ctx context.Context, s Settings) (Webhook, error) {
	if err := cmp.Or(w.checkAddress(s.URL), checkTypes(s.Types), checkFormat(s.Format)); err != nil {
		return Webhook{}, fmt.Errorf("add webhook: %w", err)
	}
	s.Format = cmp.Or(s.Format, FormatCuelight)
	if len(s.Types) == 0 {
		s.Types = defaultTypes(s.Format)
	}
	// The cursor is read before the row exists, so no later event is missed.
	cursor, err := w.options.Store.EventWatermark(ctx)
	if err != nil {
		return Webhook{}, fmt.Errorf("add webhook: %w", err)
	}
	return w.queryWebhook(ctx, "add webhook", addSQL,
		w.pipeline(), s.URL, s.Types, newSecret(), s.cooldownSeconds(), cursor, s.Format)
}

func checkTypes(types []string) error {
	known := Types()
	for _, t := range types {
		if !slices.Contains(known, t) {
			return fmt.Errorf("%w: unknown event type %q", ErrInvalid, sanitize(t))
		}
	}
	return nil
}

const updateSQL = `
/* change webhook */
update cuelight_webhooks w
   set url = coalesce(nullif($3, ''), url), types = coalesce($4, types),
       cooldown = coalesce(make_interval(secs => $5), cooldown), format = coalesce(nullif($6, ''), format)
 where id = $1 and pipeline = $2
returning ` + webhookColumns

// Update changes a webhook. It keeps the secret, the cursor and the pending deliveries.
// After a change of the URL, they go to the new URL immediately. New types apply to
// future events, a new format also to pending deliveries.
func (w *Webhooks) Update(ctx context.Context, id store.ID, s Settings) (h Webhook, err error) {
	if s.URL != "" {
		err = w.checkAddress(s.URL)
	}
	if err := cmp.Or(err, checkTypes(s.Types), checkFormat(s.Format)); err != nil {
		return Webhook{}, fmt.Errorf("change webhook: %w", err)
	}
	args := []any{id, w.pipeline(), s.URL, s.Types, s.cooldownSeconds(), s.Format}
	if s.URL == "" {
		h, err = w.queryWebhook(ctx, "change webhook", updateSQL, args...)
	} else {
		h, err = w.changeAndRetry(ctx, "change webhook", updateSQL, args...)
	}
	h.Secret = maskSecret(h.Secret)
	return h, err
}

const listSQL = `
/* list webhooks */
select ` + webhookColumns + `
  from cuelight_webhooks w where pipeline = $1 order by id`

// List returns all webhooks, the oldest first.
func (w *Webhooks) List(ctx context.Context) ([]Webhook, error) {
	all, err := collect(ctx, w.db, scanWebhook, "list webhooks", listSQL, w.pipeline())
	for i := range all {
		all[i].Secret = maskSecret(all[i].Secret)
	}
	return all, err
}

const rotateSQL = `
/* rotate webhook secret */
update cuelight_webhooks w
   set secret = $3, old_secret = secret, old_until = now() + make_interval(secs => $4)
 where id = $1 and pipeline = $2
returning ` + webhookColumns

// DefaultOverlap is how long the previous secret also signs if nothing else is requested.
const DefaultOverlap = 24 * time.Hour

// RotateSecret replaces the secret and returns the new one. During the overlap deliveries
// are signed with both, so that the receiver can switch. Older secrets cease to sign.
func (w *Webhooks) RotateSecret(ctx context.Context, id store.ID, overlap time.Duration) (Webhook, error) {
	return w.queryWebhook(ctx, "rotate webhook secret", rotateSQL,
		id, w.pipeline(), newSecret(), max(overlap, 0).Seconds())
}

const disableSQL = `
/* disable webhook */
update cuelight_webhooks w
   set disabled_at = coalesce(disabled_at, now()),
       disabled_reason = case when disabled_at is null then $3 else disabled_reason end
 where id = $1 and pipeline = $2
returning ` + webhookColumns

// Disable stops deliveries to a webhook, except running calls. It keeps the pending
// deliveries for [Webhooks.Enable].
func (w *Webhooks) Disable(ctx context.Context, id store.ID, reason string) error {
	_, err := w.queryWebhook(ctx, "disable webhook", disableSQL, id, w.pipeline(), sanitize(reason))
	return err
}

const enableSQL = `
/* enable webhook */
update cuelight_webhooks w set disabled_at = null, disabled_reason = ''
 where id = $1 and pipeline = $2
returning ` + webhookColumns

// Enable resumes deliveries. The webhook also gets the events since it was disabled, if
// the outbox still has them.
func (w *Webhooks) Enable(ctx context.Context, id store.ID) error {
	_, err := w.changeAndRetry(ctx, "enable webhook", enableSQL, id, w.pipeline())
	return err
}

const removeSQL = `
/* remove webhook */
delete from cuelight_webhooks w where id = $1 and pipeline = $2
returning ` + webhookColumns

// Remove deletes a webhook and all its deliveries.
func (w *Webhooks) Remove(ctx context.Context, id store.ID) error {
	_, err := w.queryWebhook(ctx, "remove webhook", removeSQL, id, w.pipeline())
	return err
}

const retryNowSQL = `
/* retry deliveries now */
update cuelight_deliveries set run_at = now() where webhook_id = $1 and status = 'pending' and run_at > now()`

// changeAndRetry runs queryWebhook, and makes the webhook's pending deliveries due.
func (w *Webhooks) changeAndRetry(ctx context.Context, action, sql string, args ...any) (h Webhook, err error) {
	err = pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) (err error) {
		inTx := Webhooks{options: w.options, db: tx}
		if h, err = inTx.queryWebhook(ctx, action, sql, args...); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, retryNowSQL, h.ID); err != nil {
			return fmt.Errorf("%s: %w", action, err)
		}
		return nil
	})
	return h, err
}

// queryWebhook runs a statement that returns one webhook.
func (w *Webhooks) queryWebhook(ctx context.Context, action, sql string, args ...any) (Webhook, error) {
	all, err := collect(ctx, w.db, scanWebhook, action, sql, args...)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: %w", action, ErrNotFound)
	}
	if err != nil {
		return Webhook{}, err
	}
	return all[0], nil
}

// collect runs a query and returns its rows.
func collect[T any](
	ctx context.Context, db store.DB, scan pgx.RowToFunc[T], action, sql string, args ...any,
) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	return all, nil
}
