package webhook

import (
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
	// Types are what it is told of, see [Types]. None is every event but progress
	// and alerts.
	Types []string `json:"types"`
	// Secret is what it checks signatures with. It is whole in what [Webhooks.Add]
	// and [Webhooks.Rotate] return, and nowhere else: only its beginning is.
	Secret string `json:"secret"`
	// OldSecretUntil is until when the one before signs, too.
	OldSecretUntil *time.Time `json:"old_secret_until,omitempty"`
	// Cooldown is how many seconds an alert is not repeated for.
	Cooldown       int        `json:"cooldown_s"`
	CreatedAt      time.Time  `json:"created_at"`
	DisabledAt     *time.Time `json:"disabled_at,omitempty"`
	DisabledReason string     `json:"disabled_why,omitempty"`
	// Pending and Dead are how many deliveries wait, and could not be made. At most
	// 100,000 are counted of each.
	Pending int `json:"pending"`
	Dead    int `json:"dead"`
}

// Registration is what a webhook is to be.
type Registration struct {
	URL   string
	Types []string // see [Types]; none for every event but progress and alerts
	// Cooldown is how long an alert is not repeated for, in whole seconds. Default
	// 300 s; negative for none.
	Cooldown time.Duration
}

const webhookColumns = `
id, url, types, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_why,
       (select count(*) from (select from cuelight_deliveries d where d.webhook_id = w.id and d.status = 'pending' limit 100000) as few),
       (select count(*) from (select from cuelight_deliveries d where d.webhook_id = w.id and d.status = 'dead' limit 100000) as few)`

func scanWebhook(row pgx.CollectableRow) (h Webhook, err error) {
	err = row.Scan(&h.ID, &h.URL, &h.Types, &h.Secret, &h.OldSecretUntil, &h.Cooldown,
		&h.CreatedAt, &h.DisabledAt, &h.DisabledReason, &h.Pending, &h.Dead)
	return h, err
}

const addSQL = `
/* add webhook */
insert into cuelight_webhooks as w (pipeline, url, types, secret, cooldown, cursor)
values ($1, $2, $3, $4, make_interval(secs => $5), $6)
returning ` + webhookColumns

// Add registers a receiver for what happens from now on. The secret that it
// returns is not shown again.
func (w *Webhooks) Add(ctx context.Context, r Registration) (Webhook, error) {
	if err := w.checkAddress(r.URL); err != nil {
		return Webhook{}, fmt.Errorf("add webhook: %w", err)
	}
	if r.Types == nil {
		r.Types = []string{}
	}
	if err := checkTypes(r.Types); err != nil {
		return Webhook{}, fmt.Errorf("add webhook: %w", err)
	}
	defaultTo(&r.Cooldown, 300*time.Second)
	// Read before the row is there, so that nothing that happens after it is missed.
	cursor, err := w.options.Store.EventWatermark(ctx)
	if err != nil {
		return Webhook{}, fmt.Errorf("add webhook: %w", err)
	}
	return w.queryWebhook(ctx, "add webhook", addSQL, w.options.Pipeline, r.URL, r.Types, newSecret(), int(max(r.Cooldown, 0)/time.Second), cursor)
}

func checkTypes(types []string) error {
	known := Types()
	for _, typ := range types {
		if !slices.Contains(known, typ) {
			return fmt.Errorf("%w: there is no event of type %q", ErrInvalid, sanitize(typ))
		}
	}
	return nil
}

// Change is what is to be different with a webhook. What it leaves out stays.
type Update struct {
	URL      string         // "" leaves it
	Types    []string       // nil leaves them; an empty list is every event but progress and alerts
	Cooldown *time.Duration // nil leaves it; 0 for none
}

const updateSQL = `
/* change webhook */
update cuelight_webhooks w
   set url = coalesce(nullif($3, ''), url), types = coalesce($4, types), cooldown = coalesce(make_interval(secs => $5), cooldown)
 where id = $1 and pipeline = $2
returning ` + webhookColumns

// Change changes a webhook, which keeps its secret, its place in what happens, and
// what is to be delivered: with another URL that goes there, and at once. Types say
// what is told from now on.
func (w *Webhooks) Update(ctx context.Context, id store.ID, c Update) (Webhook, error) {
	if c.URL != "" {
		if err := w.checkAddress(c.URL); err != nil {
			return Webhook{}, fmt.Errorf("change webhook: %w", err)
		}
	}
	if err := checkTypes(c.Types); err != nil {
		return Webhook{}, fmt.Errorf("change webhook: %w", err)
	}
	var cooldown *float64
	if c.Cooldown != nil {
		whole := (*c.Cooldown).Truncate(time.Second).Seconds()
		cooldown = new(max(whole, 0))
	}
	var h Webhook
	err := pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) (err error) {
		in := Webhooks{options: w.options, db: tx}
		if h, err = in.queryWebhook(ctx, "change webhook", updateSQL, id, w.options.Pipeline, c.URL, c.Types, cooldown); err != nil || c.URL == "" {
			return err
		}
		if _, err := tx.Exec(ctx, retryNowSQL, id); err != nil {
			return fmt.Errorf("change webhook: %w", err)
		}
		return nil
	})
	h.Secret = maskSecret(h.Secret)
	return h, err
}

const listSQL = `
/* list webhooks */
select ` + webhookColumns + `
  from cuelight_webhooks w where pipeline = $1 order by id`

// List is all of them, in the order in which they were added.
func (w *Webhooks) List(ctx context.Context) ([]Webhook, error) {
	rows, err := w.db.Query(ctx, listSQL, w.options.Pipeline)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	all, err := pgx.CollectRows(rows, scanWebhook)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	for i := range all {
		all[i].Secret = maskSecret(all[i].Secret)
	}
	return all, nil
}

const rotateSQL = `
/* rotate webhook secret */
update cuelight_webhooks w
   set secret = $3, old_secret = secret, old_until = now() + make_interval(secs => $4)
 where id = $1 and pipeline = $2
returning ` + webhookColumns

// Rotate gives a webhook a new secret, and returns it. For as long as overlap,
// default 24 hours, negative for not at all, the old one signs, too, so that the
// receiver can change over. One that was older still signs no more.
func (w *Webhooks) RotateSecret(ctx context.Context, id store.ID, overlap time.Duration) (Webhook, error) {
	defaultTo(&overlap, 24*time.Hour)
	return w.queryWebhook(ctx, "rotate webhook secret", rotateSQL, id, w.options.Pipeline, newSecret(), max(overlap, 0).Seconds())
}

const disableSQL = `
/* disable webhook */
update cuelight_webhooks w
   set disabled_at = coalesce(disabled_at, now()), disabled_why = case when disabled_at is null then $3 else disabled_why end
 where id = $1 and pipeline = $2
returning ` + webhookColumns

// Disable stops all deliveries to a webhook but those that are on their way, and
// keeps what is to be delivered until [Webhooks.Enable].
func (w *Webhooks) Disable(ctx context.Context, id store.ID, why string) error {
	_, err := w.queryWebhook(ctx, "disable webhook", disableSQL, id, w.options.Pipeline, sanitize(why))
	return err
}

const enableSQL = `
/* enable webhook */
update cuelight_webhooks w set disabled_at = null, disabled_why = ''
 where id = $1 and pipeline = $2
returning ` + webhookColumns

// hurrySQL: whoever waits for another attempt need not wait any longer.
const retryNowSQL = `
/* hurry deliveries */
update cuelight_deliveries set run_at = now() where webhook_id = $1 and status = 'pending' and run_at > now()`

// Enable goes on where a webhook was when it was disabled: it is told of what has
// happened since, as far as the outbox still knows it.
func (w *Webhooks) Enable(ctx context.Context, id store.ID) error {
	return pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error {
		in := Webhooks{options: w.options, db: tx}
		if _, err := in.queryWebhook(ctx, "enable webhook", enableSQL, id, w.options.Pipeline); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, retryNowSQL, id); err != nil {
			return fmt.Errorf("enable webhook: %w", err)
		}
		return nil
	})
}

const removeSQL = `
/* remove webhook */
delete from cuelight_webhooks w where id = $1 and pipeline = $2
returning ` + webhookColumns

// Remove forgets a webhook and all its deliveries.
func (w *Webhooks) Remove(ctx context.Context, id store.ID) error {
	_, err := w.queryWebhook(ctx, "remove webhook", removeSQL, id, w.options.Pipeline)
	return err
}

// one runs a statement that returns the webhook it was about.
func (w *Webhooks) queryWebhook(ctx context.Context, act, sql string, args ...any) (Webhook, error) {
	rows, err := w.db.Query(ctx, sql, args...)
	if err != nil {
		return Webhook{}, fmt.Errorf("%s: %w", act, err)
	}
	h, err := pgx.CollectExactlyOneRow(rows, scanWebhook)
	if err != nil {
		return Webhook{}, fmt.Errorf("%s: %w", act, notFound(err))
	}
	return h, nil
}
