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
	RunAt      time.Time  `json:"run_at"` // not before
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Response   int        `json:"response,omitempty"` // the last answer's status
	Error      string     `json:"error,omitempty"`    // of the last attempt
	Payload    string     `json:"payload"`            // what is sent, to the letter
}

// DeliveryFilter chooses deliveries. Its zero value chooses all.
type DeliveryFilter struct {
	Webhook store.ID
	Status  string   // pending, delivered, dead or suppressed
	After   store.ID // only those older than this one, for the next page
	Limit   int      // at most so many; default 100
}

const deliveriesSQL = `
/* list deliveries */
select d.id, d.webhook_id, d.event_id, d.type, d.task_id, d.status, d.created_at, d.attempts, d.run_at, d.finished_at,
       coalesce(d.response, 0), d.error, d.payload
  from cuelight_deliveries d
 where %s
 order by %s
 limit $2`

// sql is the statement for these deliveries, and what it is given. Conditions that
// are written out are served by indexes, those that depend on a parameter are not.
func (f DeliveryFilter) query(pipeline string) (string, []any, error) {
	where, args := []string{"d.webhook_id in (select id from cuelight_webhooks where pipeline = $1)"}, []any{pipeline, f.Limit}
	order := "d.id desc"
	if !f.Webhook.IsZero() {
		// Between, because what is equal may be left out of the order; then the
		// deliveries of all webhooks would be looked through.
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
		return "", nil, fmt.Errorf("%w: there is no status %q", ErrInvalid, sanitize(f.Status))
	}
	return fmt.Sprintf(deliveriesSQL, strings.Join(where, "\n   and "), order), args, nil
}

// Deliveries lists them, the newest first. The next page is that After the last.
func (w *Webhooks) Deliveries(ctx context.Context, f DeliveryFilter) ([]Delivery, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	sql, args, err := f.query(w.options.Pipeline)
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	rows, err := w.db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d Delivery, err error) {
		err = row.Scan(&d.ID, &d.Webhook, &d.Event, &d.Type, &d.Task, &d.Status, &d.CreatedAt, &d.Attempts, &d.RunAt, &d.FinishedAt,
			&d.Response, &d.Error, &d.Payload)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	return all, nil
}

const redeliverSQL = `
/* redeliver */
update cuelight_deliveries
   set status = 'pending', attempts = 0, run_at = now(), finished_at = null, response = null, error = ''
 where id = $1 and status <> 'pending'
   and webhook_id in (select id from cuelight_webhooks where pipeline = $2)
returning id`

const findDeliverySQL = `
/* look for delivery */
select d.id from cuelight_deliveries d join cuelight_webhooks w on w.id = d.webhook_id where d.id = $1 and w.pipeline = $2`

// Redeliver delivers again what is dead, delivered or suppressed, under the same
// id, with all its attempts. For what is pending anyway it does nothing.
func (w *Webhooks) Redeliver(ctx context.Context, delivery store.ID) error {
	var id store.ID
	err := w.db.QueryRow(ctx, redeliverSQL, delivery, w.options.Pipeline).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = w.db.QueryRow(ctx, findDeliverySQL, delivery, w.options.Pipeline).Scan(&id)
	}
	if err != nil {
		return fmt.Errorf("redeliver: %w", notFound(err))
	}
	return nil
}

const redeliverDeadSQL = `
/* redeliver dead */
update cuelight_deliveries
   set status = 'pending', attempts = 0, run_at = now(), finished_at = null, response = null, error = ''
 where webhook_id in (select id from cuelight_webhooks where id = $1 and pipeline = $2) and status = 'dead'`

const webhookExistsSQL = `
/* look for webhook */
select id from cuelight_webhooks where id = $1 and pipeline = $2`

// RedeliverDead delivers again all that is dead of one webhook, in order per
// task, and returns how many those are.
func (w *Webhooks) RedeliverDead(ctx context.Context, webhook store.ID) (int, error) {
	done, err := w.db.Exec(ctx, redeliverDeadSQL, webhook, w.options.Pipeline)
	if err == nil && done.RowsAffected() == 0 { // there may be no such webhook
		err = w.db.QueryRow(ctx, webhookExistsSQL, webhook, w.options.Pipeline).Scan(&webhook)
	}
	if err != nil {
		return 0, fmt.Errorf("redeliver dead: %w", notFound(err))
	}
	return int(done.RowsAffected()), nil
}

// Ping is what became of one.
type PingResult struct {
	OK       bool          `json:"ok"`
	Status   int           `json:"status,omitempty"` // of the answer; 0 if there was none
	Error    string        `json:"error,omitempty"`
	Duration time.Duration `json:"took_ns"`
}

const findWebhookSQL = `
/* find webhook */
select url, array_remove(array[secret, case when old_until > now() then old_secret end], null)
  from cuelight_webhooks where id = $1 and pipeline = $2`

// Test sends a ping, signed as everything else, from this process and at once, and
// returns what became of it. It does so also where the webhook is disabled.
func (w *Webhooks) Test(ctx context.Context, id store.ID) (PingResult, error) {
	var address string
	var secrets []string
	if err := w.db.QueryRow(ctx, findWebhookSQL, id, w.options.Pipeline).Scan(&address, &secrets); err != nil {
		return PingResult{}, fmt.Errorf("test webhook: %w", notFound(err))
	}
	ping := payload{Type: "ping", Timestamp: time.Now().UTC(), Data: eventData{Pipeline: w.options.Pipeline, Webhook: id}}
	r := w.client.send(ctx, address, secrets, newID().String(), ping.encode())
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
