package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// Delivery is one event for one webhook.
type Delivery struct {
	ID         store.ID   `json:"id"` // the header webhook-id
	Webhook    store.ID   `json:"webhook_id"`
	Event      int64      `json:"event_id"`
	Type       string     `json:"type"`
	Task       store.ID   `json:"task_id,omitzero"`
	Status     string     `json:"status"` // pending, delivered, dead or suppressed
	CreatedAt  time.Time  `json:"created_at"`
	Attempts   int        `json:"attempts"`
	RunAt      time.Time  `json:"run_at"` // the earliest time of the next attempt
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Response   int        `json:"response,omitempty"` // status of the last response
	Error      string     `json:"error,omitempty"`    // of the last attempt
	Payload    string     `json:"payload"`            // as sent in the format cuelight
}

// DeliveryFilter selects deliveries. The zero value selects all.
type DeliveryFilter struct {
	Webhook store.ID
	Status  string   // pending, delivered, dead or suppressed
	After   store.ID // the last delivery of the previous page
	Limit   int      // default 100
}

const deliveriesSQL = `
/* list deliveries */
select d.id, d.webhook_id, d.event_id, d.type, d.task_id, d.status, d.created_at, d.attempts, d.run_at, d.finished_at,
       coalesce(d.response, 0), d.error, d.payload
  from cuelight_deliveries d
 where %s
 order by %s
 limit $2`

// query returns the statement and its arguments. The status is part of the statement,
// because PostgreSQL uses the partial indexes only for a constant.
func (f DeliveryFilter) query(pipeline string) (string, []any, error) {
	where := []string{"d.webhook_id in (select id from cuelight_webhooks where pipeline = $1)"}
	args := []any{pipeline, f.Limit}
	order := "d.id desc"
	if !f.Webhook.IsZero() {
		// Not "=": PostgreSQL would drop the column from the order, and could then
		// scan the deliveries of all webhooks.
		where = append(where, "d.webhook_id between $3 and $3")
		order, args = "d.webhook_id desc, d.id desc", append(args, f.Webhook)
	}
	if !f.After.IsZero() {
		args = append(args, f.After)
		where = append(where, fmt.Sprintf("d.id < $%d", len(args)))
	}
	switch f.Status {
	case "":
	case "pending", "delivered", "dead", "suppressed":
		where = append(where, "d.status = '"+f.Status+"'")
	default:
		return "", nil, fmt.Errorf("%w: unknown status %q; allowed: pending, delivered, dead, suppressed",
			ErrInvalid, sanitize(f.Status))
	}
	return fmt.Sprintf(deliveriesSQL, strings.Join(where, "\n   and "), order), args, nil
}

// Deliveries lists deliveries, the newest first.
func (w *Webhooks) Deliveries(ctx context.Context, f DeliveryFilter) ([]Delivery, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	sql, args, err := f.query(w.pipeline())
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	return collect(ctx, w.db, func(row pgx.CollectableRow) (d Delivery, err error) {
		err = row.Scan(&d.ID, &d.Webhook, &d.Event, &d.Type, &d.Task, &d.Status, &d.CreatedAt, &d.Attempts, &d.RunAt,
			&d.FinishedAt, &d.Response, &d.Error, &d.Payload)
		return d, err
	}, "list deliveries", sql, args...)
}

const resetDeliverySQL = `
update cuelight_deliveries
   set status = 'pending', attempts = 0, run_at = now(), finished_at = null, response = null, error = ''
`

const redeliverSQL = `
/* redeliver */` + resetDeliverySQL + `
 where id = $1 and status <> 'pending'
   and webhook_id in (select id from cuelight_webhooks where pipeline = $2)
returning id`

const findDeliverySQL = `
/* find delivery */
select d.id from cuelight_deliveries d join cuelight_webhooks w on w.id = d.webhook_id
 where d.id = $1 and w.pipeline = $2`

// Redeliver makes a dead, delivered or suppressed delivery pending again, with the same
// id and all its attempts. It does not change a pending one.
func (w *Webhooks) Redeliver(ctx context.Context, delivery store.ID) error {
	var id store.ID
	err := w.db.QueryRow(ctx, redeliverSQL, delivery, w.pipeline()).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = w.db.QueryRow(ctx, findDeliverySQL, delivery, w.pipeline()).Scan(&id)
	}
	if err != nil {
		return fmt.Errorf("redeliver: %w", notFound(err))
	}
	return nil
}

const redeliverDeadSQL = `
/* redeliver dead */` + resetDeliverySQL + `
 where webhook_id in (select id from cuelight_webhooks where id = $1 and pipeline = $2) and status = 'dead'`

// RedeliverDead redelivers all dead deliveries of a webhook, in order per task, and
// returns their number.
func (w *Webhooks) RedeliverDead(ctx context.Context, webhook store.ID) (int, error) {
	tag, err := w.db.Exec(ctx, redeliverDeadSQL, webhook, w.pipeline())
	if err == nil && tag.RowsAffected() == 0 {
		_, _, _, err = w.findWebhook(ctx, webhook)
	}
	if err != nil {
		return 0, fmt.Errorf("redeliver dead: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

const findWebhookSQL = `
/* find webhook */
select url, format, array_remove(array[secret, case when old_until > now() then old_secret end], null)
  from cuelight_webhooks where id = $1 and pipeline = $2`

// findWebhook returns a webhook's URL, its format and its signing secrets.
func (w *Webhooks) findWebhook(ctx context.Context, id store.ID) (url, format string, secrets []string, err error) {
	err = w.db.QueryRow(ctx, findWebhookSQL, id, w.pipeline()).Scan(&url, &format, &secrets)
	return url, format, secrets, notFound(err)
}

// PingResult is the result of [Webhooks.Test].
type PingResult struct {
	OK       bool          `json:"ok"`
	Status   int           `json:"status,omitempty"` // of the response; 0 if there was none
	Error    string        `json:"error,omitempty"`
	Duration time.Duration `json:"took_ns"`
}

// Test immediately sends a signed ping from this process, even to a disabled webhook.
func (w *Webhooks) Test(ctx context.Context, id store.ID) (PingResult, error) {
	url, format, secrets, err := w.findWebhook(ctx, id)
	if err != nil {
		return PingResult{}, fmt.Errorf("test webhook: %w", err)
	}
	ping := payload{
		Type: "ping", Timestamp: time.Now().UTC(),
		Data: eventData{Pipeline: w.pipeline(), Webhook: id},
	}
	r := w.client.send(ctx, url, secrets, newID().String(), w.body(format, ping.encode()))
	if r.aborted {
		return PingResult{}, fmt.Errorf("test webhook: %w", ctx.Err())
	}
	return PingResult{OK: r.isDelivered(), Status: r.status, Error: r.failure, Duration: r.duration}, nil
}

func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	return err
}
